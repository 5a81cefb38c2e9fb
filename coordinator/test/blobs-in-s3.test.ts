import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import type { Sha256 } from '@starling-grid/protocol'
import { openS3Blobs, readS3Url } from '../src/blobs/s3.ts'
import { blobStoreSuite } from './blob-store-suite.ts'
import { startS3, type TestS3 } from './s3.ts'

const server = await startS3()
describe('blobs in a bucket', { skip: server === undefined }, () => {
  const s3 = server as TestS3 // the tests are skipped where there is none
  let prefixes = 0
  after(() => s3.stop())
  const settingsOf = (url: string, environment = s3.environment) => readS3Url(url, environment)

  blobStoreSuite('in a bucket', async () => {
    const store = await openS3Blobs(settingsOf(`${s3.url}/${++prefixes}`))
    return { store, damage: (name: Sha256) => s3.damage(name), close: async () => undefined }
  })

  test('a part of a blob is read without the rest, and a damaged one is refused before its first byte', async () => {
    const store = await openS3Blobs(settingsOf(`${s3.url}/parts`))
    const name = await store.put(Uint8Array.from({ length: 100_000 }, (_, i) => i % 251))
    const stored = await store.read(name)
    assert.equal(stored?.bytes, 100_000)
    assert.deepEqual(await joined(stored.open(99_998, 99_999)), [99_998 % 251, 99_999 % 251])
    const other = await openS3Blobs(settingsOf(`${s3.url}/parts`))
    await s3.damage(name)
    await assert.rejects(other.read(name), { code: 'shard-corrupt' })
  })

  test('more blobs than a page has are all listed', async () => {
    const store = await openS3Blobs({ ...settingsOf(`${s3.url}/many`), keysAtOnce: 4 })
    const put = await Promise.all(Array.from({ length: 13 }, (_, i) => store.put(Uint8Array.of(i))))
    const listed = []
    for await (const name of store.list()) listed.push(name)
    assert.deepEqual(listed.sort(), put.sort())
  })

  test('wrong keys and a bucket that does not exist are refused at the start', async () => {
    const wrong = { ...s3.environment, AWS_SECRET_ACCESS_KEY: 'another' }
    await assert.rejects(openS3Blobs(settingsOf(s3.url, wrong)), {
      code: 'folder-unwritable',
      message: /status 403 SignatureDoesNotMatch/,
    })
    await assert.rejects(openS3Blobs(settingsOf('s3://no-such-bucket')), { code: 'folder-unwritable' })
  })
})

test('an address that is not of a bucket, and one without keys, are refused with what to do', () => {
  for (const url of ['s3://', 's3://Upper/x', 'https://bucket', 's3://bucket/../x y'])
    assert.throws(() => readS3Url(url, { AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' }), { code: 'usage' })
  assert.throws(() => readS3Url('s3://bucket', {}), { code: 'usage', message: /AWS_ACCESS_KEY_ID/ })
})

async function joined(stream: AsyncIterable<Uint8Array>): Promise<number[]> {
  const all: number[] = []
  for await (const piece of stream) all.push(...piece)
  return all
}

// How a command reaches its coordinator: addresses, tokens, and names of jobs.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { openApi, originOf } from '@starling-grid/client/connection'
import { nearestJob } from '../src/api/job-named.ts'

test('an answer with the token follows no redirect, and a server of another kind is named as one', async () => {
  const asked: string[] = []
  const server = createServer(({ url = '', headers }, response) => {
    asked.push(`${url} ${headers.authorization}`)
    response.writeHead(302, { location: '/elsewhere' }).end()
  }).listen(0, '127.0.0.1')
  after(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const api = await openApi({ url: `http://127.0.0.1:${port}`, dataDir: 'nowhere' }, { STARLING_TOKEN: 'x' })
  await assert.rejects(api.jobs(), /expected a Starling coordinator, got HTTP 302/)
  assert.deepEqual(asked, ['/api/v1/jobs?limit=500 Bearer x'])
})

test('ids that differ by few letters are near, others are not', () => {
  const ids = ['handwritten-digits-4f01aa', 'shakespeare-99aa01']
  assert.equal(nearestJob('handwriten-digits-4f01aa', ids), 'handwritten-digits-4f01aa')
  assert.equal(nearestJob('shakspere', ids), 'shakespeare-99aa01')
  assert.equal(nearestJob('resnet', ids), undefined)
})

test('an address is an origin of http', () => {
  assert.equal(originOf('localhost:8790/dashboard'), 'http://localhost:8790')
  for (const wrong of ['ftp://x', 'http://x/#token=1', 'http://x/?token=1', 'http://:a@x', ''])
    assert.throws(() => originOf(wrong), { code: 'usage' }, wrong)
})

test('threat 4: the token of a coordinator on this machine goes to no other machine', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'starling-connection-'))
  after(() => rm(folder, { recursive: true, force: true }))
  await writeFile(join(folder, 'owner-token'), 'the-token-of-this-machine', { mode: 0o600 })
  const tokens: (string | undefined)[] = []
  const server = createServer(({ headers }, response) => {
    tokens.push(headers.authorization)
    response.writeHead(200).end('{"jobs":[],"next":null}')
  }).listen(0)
  after(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (const host of ['127.0.0.1', 'localhost', '127.0.0.2'])
    await (await openApi({ url: `http://${host}:${port}`, dataDir: folder }, {})).jobs()
  assert.deepEqual(tokens, ['Bearer the-token-of-this-machine', 'Bearer the-token-of-this-machine', undefined])
})

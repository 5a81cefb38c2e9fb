// What every BlobStore does, wherever it keeps its bytes.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { isGridError, type Sha256, sha256Name } from '@starling-grid/protocol'
import type { BlobStore } from '../src/blobs/blob-store.ts'

export interface OpenedStore {
  readonly store: BlobStore
  /** changes a byte behind the store's back */
  readonly damage: (name: Sha256) => Promise<void>
  readonly close: () => Promise<void>
}

const BYTES = new TextEncoder().encode('a murmuration of starlings')
// sha256sum of the text above.
const NAME = sha256Name('66c6031271f4587105e6fdec339403fbf808b9d7258ea97c1d76cc99d22275fe')
const ABSENT = sha256Name('0'.repeat(64))

export function blobStoreSuite(where: string, open: () => Promise<OpenedStore>): void {
  const opened = async () => {
    const it = await open()
    after(it.close)
    return it
  }

  test(`${where}: what was put is there under the SHA-256 of its bytes`, async () => {
    const { store } = await opened()
    assert.equal(await store.put(BYTES), NAME)
    assert.deepEqual(new Uint8Array((await store.get(NAME)) ?? []), BYTES)
    assert.deepEqual(await store.stat(NAME), { bytes: BYTES.byteLength })
    assert.equal(await store.has(NAME), true)
    assert.equal(await store.put(BYTES), NAME)
    assert.deepEqual(await names(store), [NAME])
  })

  test(`${where}: what was never put is absent, and deleting it is no error`, async () => {
    const { store } = await opened()
    assert.equal(await store.get(ABSENT), undefined)
    assert.equal(await store.stat(ABSENT), undefined)
    assert.equal(await store.has(ABSENT), false)
    await store.delete(ABSENT)
    assert.deepEqual(await names(store), [])
  })

  test(`${where}: what was deleted is gone, and the rest stays`, async () => {
    const { store } = await opened()
    const [first, second] = [await store.put(BYTES), await store.put(new Uint8Array(0))]
    assert.deepEqual(await names(store), [first, second].sort())
    await store.delete(first)
    assert.deepEqual(await names(store), [second])
    assert.equal((await store.get(second))?.byteLength, 0)
  })

  test(`${where}: bytes that the caller changes afterwards do not change the blob`, async () => {
    const { store } = await opened()
    const mine = BYTES.slice()
    const name = await store.put(mine)
    mine.fill(0)
    ;(await store.get(name))?.fill(0)
    assert.deepEqual(new Uint8Array((await store.get(name)) ?? []), BYTES)
  })

  test(`${where}: a damaged blob is refused by its name, and putting the bytes again mends it`, async () => {
    const { store, damage } = await opened()
    await damage(await store.put(BYTES))
    await assert.rejects(
      store.get(NAME),
      (error) => isGridError(error) && error.code === 'shard-corrupt' && error.message.includes(NAME),
    )
    await store.put(BYTES)
    assert.deepEqual(new Uint8Array((await store.get(NAME)) ?? []), BYTES)
  })

  test(`${where}: only 64 hex digits are a name`, async () => {
    const { store } = await opened()
    for (const text of [
      '',
      '../../etc/passwd',
      `${'0'.repeat(62)}/.`,
      '0'.repeat(63),
      NAME.toUpperCase(),
      `${NAME}\0`,
    ]) {
      const name = sha256Name(text)
      for (const use of [
        () => store.get(name),
        () => store.has(name),
        () => store.stat(name),
        () => store.delete(name),
      ])
        await assert.rejects(
          async () => use(),
          (error) => isGridError(error) && error.code === 'message-malformed',
        )
    }
  })

  test(`${where}: the same bytes put ten times at once are one blob`, async () => {
    const { store } = await opened()
    await Promise.all(Array.from({ length: 10 }, () => store.put(BYTES)))
    assert.deepEqual(await names(store), [NAME])
  })
}

async function names(store: BlobStore): Promise<Sha256[]> {
  const all: Sha256[] = []
  for await (const name of store.list()) all.push(name)
  return all.sort()
}

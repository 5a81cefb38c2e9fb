import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { isGridError, type Sha256 } from '@starling-grid/protocol'
import { openFolderBlobs } from '../src/blobs/folder.ts'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { blobStoreSuite } from './blob-store-suite.ts'

blobStoreSuite('in memory', async () => {
  const kept = new Map<Sha256, Uint8Array>()
  return { store: memoryBlobs(kept), damage: async (name) => flip(kept.get(name)), close: async () => undefined }
})

blobStoreSuite('in a folder', async () => {
  const root = await temporaryFolder()
  const damage = async (name: Sha256) => {
    const path = join(root, name)
    const bytes = await readFile(path)
    flip(bytes)
    await writeFile(path, bytes)
  }
  return { store: await openFolderBlobs(root), damage, close: () => rm(root, { recursive: true }) }
})

test('a folder keeps its blobs when it is opened again, and clears away what a crash left', async () => {
  const root = await temporaryFolder()
  after(() => rm(root, { recursive: true }))
  const name = await (await openFolderBlobs(root)).put(new Uint8Array([1, 2, 3]))
  const [fresh, old] = [join(root, 'unfinished', 'fresh'), join(root, 'unfinished', 'old')]
  for (const path of [fresh, old]) await writeFile(path, 'half a blo')
  await utimes(old, 0, 0)
  const again = await openFolderBlobs(root)
  assert.deepEqual([...((await again.get(name)) ?? [])], [1, 2, 3])
  assert.deepEqual(await readdir(join(root, 'unfinished')), ['fresh'])
})

test('a folder that cannot be made is refused by its name', async () => {
  const root = await temporaryFolder()
  after(() => rm(root, { recursive: true }))
  await writeFile(join(root, 'file'), '')
  await assert.rejects(
    openFolderBlobs(join(root, 'file', 'blobs')),
    (error) => isGridError(error) && error.code === 'folder-unwritable' && error.message.includes('file/blobs'),
  )
})

function flip(bytes: Uint8Array | undefined): void {
  if (bytes) bytes[0] = (bytes[0] ?? 0) ^ 1
}

function temporaryFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'starling-blobs-'))
}

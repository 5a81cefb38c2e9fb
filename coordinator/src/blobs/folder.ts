// Blobs as files under one folder. A file appears under its name only when its bytes are on the disk: temporary file →
// fsync → rename → fsync of the folder.
import { randomBytes } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describeError, GridError, type Sha256, sha256Name } from '@starling-grid/protocol'
import { processClock } from '../clock.ts'
import { digestOf, isBlobName, requireDigest, requireIntactStream, requireName } from './blob-name.ts'
import type { BlobStore } from './blob-store.ts'
import { storedInFile } from './stored.ts'
import { readWholeFile } from './whole-file.ts'

const UNFINISHED = 'unfinished'
/** What is kept for the group and others: nothing. */
const OWN_FOLDER = 0o700
const OWN_FILE = 0o600
/** Writing a blob takes seconds at most; what is this old was left by a process that died. */
const ABANDONED_AFTER_MS = 60 * 60 * 1000

/** @throws GridError('folder-unwritable') */
export async function openFolderBlobs(root: string): Promise<BlobStore> {
  try {
    const created = await mkdir(join(root, UNFINISHED), { recursive: true, mode: OWN_FOLDER })
    if (created !== undefined) await syncFolder(dirname(created))
    await removeAbandoned(join(root, UNFINISHED))
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected a folder that can be written, got ${root} (${describeError(cause)}); name another with --data-dir`,
      { cause },
    )
  }
  return folderBlobs(root)
}

function folderBlobs(root: string): BlobStore {
  /** blobs that this process has found intact */
  const checked = new Set<Sha256>()
  const pathOf = (name: Sha256) => {
    requireName(name)
    return join(root, name)
  }
  return {
    async put(bytes) {
      const name = sha256Name(await digestOf(bytes))
      if (!(await holds(pathOf(name), name))) await writeDurably(root, name, bytes)
      return name
    },
    async get(name) {
      const bytes = await ifPresent(readWholeFile(pathOf(name)))
      if (bytes) requireDigest(name, await digestOf(bytes), `${root} (${bytes.byteLength} bytes)`)
      return bytes
    },
    async read(name) {
      const path = pathOf(name)
      const found = await ifPresent(stat(path))
      if (found === undefined) return undefined
      if (!checked.has(name)) await requireIntactStream(name, createReadStream(path), root)
      checked.add(name)
      return storedInFile(path, found.size)
    },
    has: async (name) => (await ifPresent(stat(pathOf(name)))) !== undefined,
    async stat(name) {
      const found = await ifPresent(stat(pathOf(name)))
      return found && { bytes: found.size }
    },
    async *list() {
      yield* (await readdir(root)).filter(isBlobName)
    },
    async delete(name) {
      checked.delete(name)
      await rm(pathOf(name), { force: true })
    },
  }
}

async function holds(path: string, name: Sha256): Promise<boolean> {
  const bytes = await ifPresent(readWholeFile(path))
  return bytes !== undefined && (await digestOf(bytes)) === name
}

async function writeDurably(root: string, name: Sha256, bytes: Uint8Array): Promise<void> {
  const unfinished = join(root, UNFINISHED, randomBytes(8).toString('hex'))
  try {
    await writeAndSync(unfinished, bytes)
    await rename(unfinished, join(root, name))
    await syncFolder(root)
  } catch (cause) {
    await rm(unfinished, { force: true }).catch(() => undefined)
    throw new GridError(
      'disk-failed',
      `expected to write ${bytes.byteLength} bytes to ${root}, got: ${describeError(cause)}; ` +
        'check the space and health of the disk',
      { cause },
    )
  }
}

async function writeAndSync(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, 'wx', OWN_FILE)
  try {
    await file.writeFile(bytes)
    await file.sync()
  } finally {
    await file.close()
  }
}

async function syncFolder(path: string): Promise<void> {
  // Windows cannot open a folder, and makes a rename durable by itself.
  if (process.platform === 'win32') return
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

async function ifPresent<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

async function removeAbandoned(folder: string): Promise<void> {
  for (const file of await readdir(folder)) {
    const path = join(folder, file)
    const found = await ifPresent(stat(path))
    if (found && processClock.wallTime() - found.mtimeMs > ABANDONED_AFTER_MS) await rm(path, { force: true })
  }
}

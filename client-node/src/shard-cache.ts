// Shards in a folder of the user's cache, by content. Written to a temporary name first, so that a half-written one
// never counts. Bounded, whatever coordinators offer: the least recently used go first, and a disk that is nearly full
// gets nothing.
import { mkdir, readdir, readFile, rename, rm, stat, statfs, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Sha256 } from '@starling-grid/protocol'
import type { ShardCache } from '@starling-grid/volunteer'
import { cacheFolder } from './runtime/cache-folder.ts'

/** bytes of all coordinators' shards: some thousand shards */
export const DEFAULT_DISK_BYTES = 2e9
/** bytes that others on this machine find free */
const FREE_BYTES = 1e9
/** Share of the bound that is left after a clean-up, so that not every shard brings one. */
const LEFT = 0.9
/** Share of the bound that is written before the folder is measured again: other processes write there, too. */
const MEASURE_AFTER = 0.05

export interface ShardCacheOptions {
  readonly folder?: string
  readonly maxBytes?: number
}

export function openShardCache({
  folder = join(cacheFolder(), 'shards'),
  maxBytes = DEFAULT_DISK_BYTES,
}: ShardCacheOptions = {}): ShardCache {
  let unmeasured = Number.POSITIVE_INFINITY
  return {
    async get(name: Sha256): Promise<Uint8Array | undefined> {
      const path = join(folder, name)
      const bytes = await readFile(path).catch(() => undefined)
      const now = new Date()
      if (bytes !== undefined) await utimes(path, now, now).catch(() => undefined) // used just now
      return bytes
    },
    async put(name: Sha256, bytes: Uint8Array): Promise<void> {
      await mkdir(folder, { recursive: true })
      if (bytes.byteLength > LEFT * maxBytes || (await freeBytes(folder)) < FREE_BYTES + bytes.byteLength) return
      const partial = join(folder, `${name}.${process.pid}`)
      await writeFile(partial, bytes)
      await rename(partial, join(folder, name))
      unmeasured += bytes.byteLength
      if (unmeasured < MEASURE_AFTER * maxBytes) return
      unmeasured = 0
      await tidy(folder, maxBytes)
    },
  }
}

async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

/** Removes the least recently used until what is left and what may come before the next look fit. */
async function tidy(folder: string, maxBytes: number): Promise<void> {
  const files = await Promise.all((await readdir(folder)).map((name) => measured(join(folder, name))))
  const existing = files.filter((file) => file !== undefined).sort((a, b) => a.usedAt - b.usedAt)
  let bytes = existing.reduce((sum, file) => sum + file.bytes, 0)
  if (bytes <= maxBytes * (1 - MEASURE_AFTER)) return
  for (const file of existing) {
    if (bytes <= LEFT * maxBytes) return
    await rm(file.path, { force: true })
    bytes -= file.bytes
  }
}

/** undefined: another process was faster */
async function measured(
  path: string,
): Promise<{ readonly path: string; readonly bytes: number; readonly usedAt: number } | undefined> {
  const found = await stat(path).catch(() => undefined)
  return found === undefined ? undefined : { path, bytes: found.size, usedAt: found.mtimeMs }
}

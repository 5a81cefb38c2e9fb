// Shards in a folder of the user's cache, by content. Written to a temporary name first, so that a half-written one never counts.
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Sha256 } from '@starling-grid/protocol'
import type { ShardCache } from '@starling-grid/volunteer'
import { cacheFolder } from './runtime/cache-folder.ts'

export function openShardCache(): ShardCache {
  const folder = join(cacheFolder(), 'shards')
  return {
    async get(name: Sha256): Promise<Uint8Array | undefined> {
      return readFile(join(folder, name)).catch(() => undefined)
    },
    async put(name: Sha256, bytes: Uint8Array): Promise<void> {
      await mkdir(folder, { recursive: true })
      const partial = join(folder, `${name}.${process.pid}`)
      await writeFile(partial, bytes)
      await rename(partial, join(folder, name))
    },
  }
}

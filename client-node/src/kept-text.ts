// A small text of this user's volunteers, beside their shards. Written to a temporary name first, so that a
// half-written one never counts.
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { KeptText } from '@starling-grid/volunteer'
import { cacheFolder } from './runtime/cache-folder.ts'

export function keptText(name: string, folder = cacheFolder()): KeptText {
  const path = join(folder, name)
  return {
    read: () => readFile(path, 'utf8').catch(() => undefined),
    async write(text) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const partial = `${path}.${process.pid}`
      await writeFile(partial, text, { mode: 0o600 })
      await rename(partial, path)
    },
  }
}

// What each volunteer of this user keeps for the others and for later. Each writes a file of its own, so volunteers
// that run at once overwrite no note of another.
import { randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { KeptNotes } from '@starling-grid/volunteer'
import { cacheFolder } from './runtime/cache-folder.ts'

const ENDING = '.json'

/** A volunteer's own; a process may have several. `keptMs`: ms for which a note counts. */
export function openNotes(name: string, keptMs: number, parent = cacheFolder()): KeptNotes {
  const folder = join(parent, name)
  const own = `${process.pid}-${randomBytes(4).toString('hex')}${ENDING}`
  return {
    async others() {
      const names = await readdir(folder).catch(() => []) // not made yet
      const others = names.filter((file) => file.endsWith(ENDING) && file !== own)
      const texts = await Promise.all(others.map((file) => noteIn(join(folder, file), keptMs)))
      return texts.filter((text) => text !== undefined)
    },
    /** To a temporary name first, so that a half-written one never counts. */
    async write(text) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const path = join(folder, own)
      await writeFile(`${path}.partial`, text, { mode: 0o600 })
      await rename(`${path}.partial`, path)
    },
  }
}

/** undefined: too old, or another process removed it */
async function noteIn(path: string, keptMs: number): Promise<string | undefined> {
  const writtenAt = await stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  )
  if (Date.now() - writtenAt < keptMs) return readFile(path, 'utf8').catch(() => undefined)
  await rm(path, { force: true }).catch(() => undefined)
  return undefined
}

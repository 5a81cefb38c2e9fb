// What each volunteer of this user sent, a file of its own for each: several that run at once overwrite no note of
// another.
import { randomBytes } from 'node:crypto'
import { readdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { UploadNotes } from '@starling-grid/volunteer'
import { keptText } from './kept-text.ts'
import { cacheFolder } from './runtime/cache-folder.ts'

const ENDING = '.json'
/** ms since it was written: twice as long as a note counts */
const FORGOTTEN_AFTER_MS = 2 * 3_600_000

/** A volunteer's own; a process may have several. */
export function openUploadNotes(folder = join(cacheFolder(), 'uploaded')): UploadNotes {
  const own = `${process.pid}-${randomBytes(4).toString('hex')}${ENDING}`
  return {
    async others() {
      const names = await readdir(folder).catch(() => []) // not made yet
      const others = names.filter((name) => name.endsWith(ENDING) && name !== own)
      const texts = await Promise.all(others.map((name) => noteIn(join(folder, name))))
      return texts.filter((text) => text !== undefined)
    },
    write: keptText(own, folder).write,
  }
}

/** undefined: too old, or another process removed it */
async function noteIn(path: string): Promise<string | undefined> {
  const writtenAt = await stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  )
  if (Date.now() - writtenAt < FORGOTTEN_AFTER_MS) return readFile(path, 'utf8').catch(() => undefined)
  await rm(path, { force: true }).catch(() => undefined)
  return undefined
}

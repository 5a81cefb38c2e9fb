// Keeps unpacked files between runs. A folder appears under its final name only when it is complete, however many
// processes unpack it at once.
import { randomBytes } from 'node:crypto'
import { access, mkdir, readdir, rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { GridError } from '@starling-grid/protocol'

const PARTIAL = '.partial'
/** An unpacking takes seconds; a partial folder this old was left by a process that died. */
const ABANDONED_AFTER_MS = 60 * 60 * 1000

/** `STARLING_CACHE`, or `starling` in the user's cache folder. */
export function cacheFolder(env: NodeJS.ProcessEnv = process.env): string {
  const own = env['STARLING_CACHE']
  if (own) return resolve(own)
  return join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'starling')
}

/**
 * The folder `name` in the cache, filled by `fill` if it is not there yet.
 * `fill` gets the folder to write into and the folder that it will be afterwards.
 */
export async function filledOnce(name: string, fill: (into: string, final: string) => Promise<void>): Promise<string> {
  const final = join(cacheFolder(), name)
  if (await exists(final)) return final
  const partial = `${final}.${process.pid}-${randomBytes(4).toString('hex')}${PARTIAL}`
  try {
    await mkdir(partial, { recursive: true })
    await fill(partial, final)
    await moveIntoPlace(partial, final)
  } catch (cause) {
    throw cacheError(final, cause)
  } finally {
    await rm(partial, { recursive: true, force: true }).catch(() => undefined)
  }
  await removeAbandoned(final)
  return final
}

export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

async function moveIntoPlace(partial: string, final: string): Promise<void> {
  try {
    await rename(partial, final)
  } catch (cause) {
    // Another process was first; its folder is as good as ours.
    if (!(await exists(final))) throw cause
  }
}

async function removeAbandoned(final: string): Promise<void> {
  const parent = dirname(final)
  for (const entry of await readdir(parent)) {
    if (!entry.startsWith(`${basename(final)}.`) || !entry.endsWith(PARTIAL)) continue
    const path = join(parent, entry)
    const age = await stat(path).then(
      (found) => Date.now() - found.mtimeMs,
      () => 0,
    )
    if (age > ABANDONED_AFTER_MS) await rm(path, { recursive: true, force: true })
  }
}

function cacheError(folder: string, cause: unknown): GridError {
  const why = cause instanceof Error ? cause.message : String(cause)
  return new GridError(
    'folder-unwritable',
    `expected to unpack into the cache ${folder}, got: ${why}; ` +
      'name a writable folder with 250 MB free in STARLING_CACHE',
    { cause },
  )
}

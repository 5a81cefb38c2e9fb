// Files and folders that hold secrets or other people's data belong to one user of the machine. Modes that an earlier
// start, a copy or a backup left are corrected.
import { chmod, mkdir, rm, stat, writeFile } from 'node:fs/promises'
import { describeError, GridError } from '@starling-grid/protocol'

const OTHERS = 0o077

/**
 * Takes the rights of other users away. Returns whether they had any.
 * @throws GridError 'folder-unwritable' when they keep them
 */
export async function requireOwn(path: string): Promise<boolean> {
  if (process.platform === 'win32') return false
  const mode = (await stat(path)).mode & 0o777
  if ((mode & OTHERS) === 0) return false
  try {
    await chmod(path, mode & ~OTHERS)
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected ${path} to be readable by one user alone, got mode ${mode.toString(8)}, ` +
        `and it cannot be changed (${describeError(cause)}); change it as its owner, or name another with --data-dir`,
      { cause },
    )
  }
  return true
}

/**
 * Writes a secret into the data folder, which is made when it is missing, for this user alone.
 * @throws GridError 'folder-unwritable'
 */
export async function keepSecret(dataDir: string, file: string, text: string): Promise<void> {
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 })
    await rm(file, { force: true }) // a file that is there keeps its mode
    await writeFile(file, text, { mode: 0o600, flag: 'wx' })
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected a data folder that can be written, got ${dataDir} (${describeError(cause)}); ` +
        'name another with --data-dir',
      { cause },
    )
  }
}

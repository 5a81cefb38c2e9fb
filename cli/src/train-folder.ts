// Where `train` keeps a run, so that the same command goes on with it: one folder for each job, named by the job's
// content.
import { createHash } from 'node:crypto'
import { mkdir, readdir } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, extname, join, resolve } from 'node:path'
import { describeError, GridError, type JobSpec } from '@starling-grid/protocol'

/** Hexadecimal digits of the job's SHA-256 in its folder's name. */
const HASH_LENGTH = 12

export interface TrainFolder {
  readonly path: string
  /** a run of this very job is there */
  readonly isThere: boolean
  /** folders of runs of the same file as it was before */
  readonly older: readonly string[]
}

/** `starling/train` in the user's data folder. */
export function trainRoot(env: NodeJS.ProcessEnv = process.env): string {
  return join(env['XDG_DATA_HOME'] || join(homedir(), '.local', 'share'), 'starling', 'train')
}

/** @throws GridError 'folder-unwritable' */
export async function trainFolder(file: string, job: JobSpec, root: string = trainRoot()): Promise<TrainFolder> {
  const name = basename(file, extname(file))
    .toLowerCase()
    .replaceAll(/[^0-9a-z]+/g, '-')
  const hash = createHash('sha256').update(JSON.stringify(job)).digest('hex').slice(0, HASH_LENGTH)
  const path = join(resolve(root), `${name}-${hash}`)
  try {
    await mkdir(path, { recursive: true, mode: 0o700 })
    const own = await readdir(path)
    const beside = await readdir(resolve(root))
    const older = beside
      .filter((entry) => entry.slice(0, -HASH_LENGTH) === `${name}-` && entry !== basename(path))
      .map((entry) => join(resolve(root), entry))
    return { path, isThere: own.length > 0, older }
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected a folder that can be written, got ${path} (${describeError(cause)}); name another one with --data-dir`,
      { cause },
    )
  }
}

// Which files a job may read: those inside one folder that the coordinator's owner named, links followed. A job that
// names another file learns nothing of it, not even whether it is there.
import { readdir, realpath } from 'node:fs/promises'
import { isAbsolute, join, relative, resolve } from 'node:path'
import { GridError, type JobDataset } from '@starling-grid/protocol'

/** Files of a folder that a reader of datasets opens. */
const READ_IN_FOLDERS = /ubyte(\.gz)?$/

/**
 * The same dataset with its real path.
 * @throws GridError 'dataset-unreadable' when a file that it names lies outside the root, or nowhere
 */
export async function datasetInside(dataset: JobDataset, root: string): Promise<JobDataset> {
  if (dataset.source === 'text') return { ...dataset, path: await inside(dataset.path, root) }
  if (dataset.source !== 'mnist') return dataset
  const folder = await inside(dataset.folder, root)
  const names = await readdir(folder).catch(() => [])
  for (const name of names.filter((file) => READ_IN_FOLDERS.test(file))) await inside(join(folder, name), root)
  return { ...dataset, folder }
}

/** What to do about a file that lies elsewhere. */
export const OUTSIDE_HINT = 'put it there, or start the coordinator with --data-root and a folder that has it'

/** The real path of what lies inside the root; undefined: outside, or nowhere. */
export async function insideRoot(path: string, root: string): Promise<string | undefined> {
  const base = await realpath(root).catch(() => undefined)
  const real = await realpath(resolve(root, path)).catch(() => undefined)
  const way = base === undefined || real === undefined ? '..' : relative(base, real)
  return isAbsolute(way) || way.split(/[/\\]/)[0] === '..' ? undefined : real
}

async function inside(path: string, root: string): Promise<string> {
  const real = await insideRoot(path, root)
  if (real !== undefined) return real
  throw new GridError(
    'dataset-unreadable',
    'expected data inside the folder that this coordinator reads datasets from, ' +
      `got ${JSON.stringify(path.slice(0, 200))}; ${OUTSIDE_HINT}`,
  )
}

// The files that an import reads: what they are before, and that they are the same after.
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { describeError } from '@starling-grid/protocol'
import type { SourceFile } from './forms.ts'
import { datasetUnreadable } from './samples.ts'

/** Files of one folder: their names are held in memory. */
const MAX_FILES = 10_000_000

/** What a source is now; another size or time is another source. */
export interface SourceMark {
  readonly path: string
  readonly files: readonly FileMark[]
}

export interface FileMark {
  readonly path: string
  readonly bytes: number
  /** ms since the epoch */
  readonly changed: number
}

export async function markAll(paths: readonly string[]): Promise<SourceMark[]> {
  return Promise.all(paths.map(async (path) => ({ path, files: await filesIn(path) })))
}

/** The file itself, or all files of a folder, sorted by path. */
async function filesIn(path: string): Promise<FileMark[]> {
  const found = await stat(path).catch((cause: unknown) => {
    throw datasetUnreadable(
      path,
      `cannot be read (${describeError(cause)})`,
      'Name a file or folder that is there.',
      cause,
    )
  })
  if (!found.isDirectory()) return [{ path, bytes: found.size, changed: found.mtimeMs }]
  const files: FileMark[] = []
  for (const name of (await readdir(path)).sort()) {
    if (name.startsWith('.')) continue
    files.push(...(await filesIn(join(path, name))))
    if (files.length > MAX_FILES)
      throw datasetUnreadable(path, `has more than ${MAX_FILES} files`, 'Import it in parts, under several names.')
  }
  return files
}

/** @throws GridError 'dataset-unreadable' when a file changed since the import began */
export async function hashed({ path, files }: SourceMark): Promise<SourceFile> {
  const all = createHash('sha256')
  let digest = ''
  for (const mark of files) {
    const hash = createHash('sha256')
    for await (const chunk of createReadStream(mark.path) as AsyncIterable<Buffer>) hash.update(chunk)
    const { size, mtimeMs } = await stat(mark.path)
    if (size !== mark.bytes || mtimeMs !== mark.changed)
      throw datasetUnreadable(mark.path, 'changed while it was imported', 'Import it again.')
    digest = hash.digest('hex')
    all.update(digest)
  }
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0)
  return { path, files: files.length, bytes, sha256: files.length === 1 ? digest : all.digest('hex') }
}

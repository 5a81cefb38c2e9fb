// The files that an import reads: what they are before, and that they are the same after.
import { createHash } from 'node:crypto'
import { closeSync, openSync, readdirSync, readSync, type Stats, statSync } from 'node:fs'
import { join } from 'node:path'
import { describeError } from '@starling-grid/protocol'
import { processClock } from '../clock.ts'
import { inTurns, PIECE_BYTES } from '../turns.ts'
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
  return paths.map((path) => ({ path, files: filesIn(path) }))
}

/**
 * The file itself, or all files of a folder, sorted by path. Asked for at once, as all here: of many small files
 * another thread would take longer to be asked than to answer.
 */
function filesIn(path: string): FileMark[] {
  const found = statOf(path)
  if (!found.isDirectory()) return [{ path, bytes: found.size, changed: found.mtimeMs }]
  const files: FileMark[] = []
  for (const name of readdirSync(path).sort()) {
    if (name.startsWith('.')) continue
    for (const file of filesIn(join(path, name))) files.push(file)
    if (files.length > MAX_FILES)
      throw datasetUnreadable(path, `has more than ${MAX_FILES} files`, 'Import it in parts, under several names.')
  }
  return files
}

function statOf(path: string): Stats {
  try {
    return statSync(path)
  } catch (cause) {
    const problem = `cannot be read (${describeError(cause)})`
    throw datasetUnreadable(path, problem, 'Name a file or folder that is there.', cause)
  }
}

/** Read in turns, while an import reads the same files in a thread of its own. It ends early when `signal` says so. */
export function hashedAll(marks: readonly SourceMark[], signal: AbortSignal): Promise<SourceFile[]> {
  return inTurns(hashingAll(marks, signal), processClock)
}

function* hashingAll(marks: readonly SourceMark[], signal: AbortSignal): Generator<undefined, SourceFile[]> {
  const piece = Buffer.allocUnsafe(PIECE_BYTES)
  const sources: SourceFile[] = []
  let turn = 0
  for (const { path, files } of marks) {
    const all = createHash('sha256')
    let digest = ''
    for (const file of files) {
      signal.throwIfAborted()
      turn += file.bytes
      if (turn > PIECE_BYTES) {
        turn = 0
        yield
      }
      digest = yield* hashingFile(file.path, piece, signal)
      all.update(digest)
    }
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0)
    sources.push({ path, files: files.length, bytes, sha256: files.length === 1 ? digest : all.digest('hex') })
  }
  return sources
}

function* hashingFile(path: string, piece: Buffer, signal: AbortSignal): Generator<undefined, string> {
  const hash = createHash('sha256')
  const file = openSync(path, 'r')
  try {
    for (;;) {
      const bytes = readSync(file, piece, 0, piece.byteLength, null)
      if (bytes === 0) return hash.digest('hex')
      hash.update(piece.subarray(0, bytes))
      if (bytes < piece.byteLength) continue
      yield
      signal.throwIfAborted()
    }
  } finally {
    closeSync(file)
  }
}

/** @throws GridError 'dataset-unreadable' when a file changed since it was marked */
export function requireUnchanged(marks: readonly SourceMark[]): void {
  for (const { path, bytes, changed } of marks.flatMap(({ files }) => files)) {
    const { size, mtimeMs } = statOf(path)
    if (size !== bytes || mtimeMs !== changed)
      throw datasetUnreadable(path, 'changed while it was imported', 'Import it again.')
  }
}

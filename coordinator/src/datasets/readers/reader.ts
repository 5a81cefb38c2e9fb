// The seam between formats and the import: samples in runs, each with the place at which reading can go on after it.
import type { SampleForm, TargetForm } from '../forms.ts'

/**
 * Where a run begins. Its bytes depend on this alone, so an import that goes on reads what one without a break does.
 */
export interface ReadPlace {
  /** index of the file */
  readonly file: number
  /** what the format counts in the file: bytes, rows or images */
  readonly offset: number
  /** rows of the file before it, for messages */
  readonly row: number
}

export const BEGINNING: ReadPlace = { file: 0, offset: 0, row: 0 }

export interface SampleRun {
  readonly count: number
  /** (count, …shape) */
  readonly x: Uint8Array | Float32Array
  /** classes (count,), values or labels (count, size) */
  readonly y: Int32Array | Float32Array | Uint8Array
  readonly next: ReadPlace
  /** rows that were left out for a missing value */
  readonly dropped: number
  /** source that was read for it, in bytes */
  readonly bytes: number
}

export type SplitPart = 'train' | 'validation'
/** Paths of the files of each part. */
export type PartFiles = Readonly<Record<SplitPart, readonly string[]>>

/** One dataset that is being read. Holds a run at a time. */
export interface SampleReader {
  readonly format: string
  readonly inputs: SampleForm
  /** complete when all is read */
  targets(): TargetForm
  read(part: SplitPart, from: ReadPlace): AsyncIterable<SampleRun>
  /** Once, after the first window: old class → class, when that gives classes a better order than they came in. */
  settle(): Int32Array | undefined
  /** What it learned, as JSON: the next process is given it to go on. */
  state(): unknown
  /** bytes of the sources of each part */
  readonly bytes: Readonly<Record<SplitPart, number>>
}

/** Bytes of source text in one run. */
export const RUN_BYTES = 512 * 1024

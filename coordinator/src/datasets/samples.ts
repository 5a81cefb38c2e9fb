// What every importer delivers: samples in memory, before they are mixed and cut into shards.
import { GridError } from '@starling-grid/protocol'

/** Samples of one split. x (n, …inputShape) U8 row-major, y (n,) class indices. */
export interface Samples {
  readonly x: Uint8Array
  readonly y: Uint8Array
}

export interface ImportedDataset {
  readonly name: string
  /** where the samples come from, for people */
  readonly source: string
  readonly inputShape: readonly number[]
  readonly classes: number
  /** multiplies stored U8 values */
  readonly inputScale: number
  readonly train: Samples
  readonly validation: Samples
}

/** Importing as people watch it: how much of `total` is done. */
export interface ImportProgress {
  readonly stage: 'reading files' | 'writing shards'
  readonly done: number
  readonly total: number
}
export type OnProgress = (progress: ImportProgress) => void

/** U8 pixels to 0…1. */
export const PIXEL_SCALE = 1 / 255

export function datasetUnreadable(file: string, problem: string, cure: string, cause?: unknown): GridError {
  return new GridError('dataset-unreadable', `${file}: ${problem}. ${cure}`, { cause })
}

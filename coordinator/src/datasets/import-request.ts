// What is imported, and what an import is given to do it.
import type { BlobStore } from '../blobs/blob-store.ts'
import type { NamedDataset } from './catalog.ts'
import type { ImportFile } from './import-state.ts'
import type { ImportOptions } from './readers/open.ts'
import type { SplitPart } from './readers/reader.ts'
import type { SourceMark } from './sources.ts'

export interface ImportRequest {
  readonly name: string
  readonly paths: readonly string[]
  /** what is validated with; absent: a part of `paths` */
  readonly validationPaths?: readonly string[]
  /** part of the samples that validates */
  readonly validationShare: number
  readonly seed: number
  readonly options: ImportOptions
}

export interface ImportWatch {
  /** bytes of the sources that were read, of all */
  readonly onProgress?: (done: number, total: number, samples: number) => void
  /** ISO 8601 */
  readonly now: () => string
  /** of inputs that are mixed at once (default WINDOW_BYTES) */
  readonly windowBytes?: number
}

/** What importing makes of the samples alone. */
export type Imported = Omit<NamedDataset, 'name' | 'importedAt' | 'sources'>

export interface ImportTools {
  readonly request: ImportRequest
  readonly marks: Readonly<Record<SplitPart, readonly SourceMark[]>>
  readonly file: ImportFile
  readonly blobs: BlobStore
  readonly watch: ImportWatch
}

// The datasets that were imported under a name (named-imports.ts). A file appears when its import is complete; while it
// runs, its state lies beside it (import-state.ts).
import type { ChatForm, Sha256, ShardRef } from '@starling-grid/protocol'
import { NamedImports } from '../named-imports.ts'
import type { TargetKind } from './fit.ts'
import type { ImportOptions } from './readers/open.ts'
import type { StoredMoments, Summary } from './statistics.ts'

/** What a sample is in the shards. */
export interface SampleForm {
  /** (channels, height, width) of images, (n) of numbers; of texts (1) */
  readonly shape: readonly number[]
  readonly inputType: 'U8' | 'F32'
  /** multiplies stored inputs */
  readonly inputScale: number
  /** names of the columns of a flat sample */
  readonly inputNames?: readonly string[]
}

export interface TargetForm {
  readonly kind: TargetKind | 'tokens'
  /** how many classes, values, labels or tokens */
  readonly size: number
  /** of classes, or of the columns of values and labels */
  readonly names?: readonly string[]
  /** of a text of characters: each once, in the order of their numbers */
  readonly vocabulary?: string
  /** of another text */
  readonly tokens?: 'bytes' | 'bpe'
  /** samples of so many tokens with a target each; absent: running text, of which windows are cut */
  readonly labelled?: number
  /** of pieces: JSON of the tokenizer.json, for those who predict with a model of this text */
  readonly tokenizer?: string
  /** of examples in the tokens of a model: how that is talked to */
  readonly chat?: ChatForm
}

/** A file or folder that was read. */
export interface SourceFile {
  readonly path: string
  readonly files: number
  readonly bytes: number
  /** of its bytes; of a folder: of the digests of its files in their order */
  readonly sha256: string
}

/** What an import needs to go on with further files. */
export interface ImportAgain {
  readonly options: ImportOptions
  readonly seed: number
  /** that were mixed */
  readonly windows: number
  readonly moments: StoredMoments
}

export interface NamedDataset {
  readonly name: string
  readonly format: string
  /** ISO 8601 */
  readonly importedAt: string
  readonly inputs: SampleForm
  readonly targets: TargetForm
  /** of the training samples; of texts none */
  readonly statistics?: Summary
  /** training samples of each class or label */
  readonly counts?: readonly number[]
  /** rows left out because a value was missing */
  readonly dropped: number
  readonly sources: readonly SourceFile[]
  /** absent of texts and examples, and of what older programs imported: nothing can be appended */
  readonly again?: ImportAgain
  /** of a text: `samples` are tokens */
  readonly train: readonly ShardRef[]
  readonly validation: readonly ShardRef[]
}

export class Catalog extends NamedImports<NamedDataset> {
  constructor(dataDir: string) {
    super(dataDir, {
      what: 'dataset',
      folder: 'datasets',
      code: 'dataset-unreadable',
      importCommand: (name) => `starling dataset import ${name} PATH`,
      blobsOf: shardsOf,
    })
  }
}

export function shardsOf({ train, validation }: Pick<NamedDataset, 'train' | 'validation'>): Sha256[] {
  return [...train, ...validation].map(({ sha256 }) => sha256)
}

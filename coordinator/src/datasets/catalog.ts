// The datasets that were imported under a name (named-imports.ts). A file appears when its import is complete; while it
// runs, its state lies beside it (import-state.ts).
import type { Sha256, ShardRef } from '@starling-grid/protocol'
import { NamedImports } from '../named-imports.ts'
import type { SampleForm, SourceFile, TargetForm } from './forms.ts'
import type { ImportOptions } from './readers/open.ts'
import type { StoredMoments, Summary } from './statistics.ts'

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

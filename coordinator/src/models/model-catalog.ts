// The models that were imported under a name (named-imports.ts).
import type { CausalLmConfig, Storage } from '@starling-grid/model'
import type { Sha256 } from '@starling-grid/protocol'
import { NamedImports } from '../named-imports.ts'

/** How texts become its tokens. */
export interface TextForm {
  /** JSON of tokenizer.json */
  readonly tokenizer?: string
  readonly chatTemplate?: string
  readonly special: Readonly<Record<string, string>>
  /** tokens that end an answer */
  readonly ends: readonly number[]
}

export interface ImportedModel extends TextForm {
  readonly name: string
  /** ISO 8601 */
  readonly importedAt: string
  /** the folder that was read */
  readonly folder: string
  readonly config: CausalLmConfig
  /** config.json as it was, for those who export the whole model */
  readonly published: Readonly<Record<string, unknown>>
  readonly parameters: number
  readonly storage: Storage
  readonly manifest: { readonly sha256: Sha256 }
  readonly shards: readonly { readonly sha256: Sha256; readonly bytes: number }[]
}

export class ModelCatalog extends NamedImports<ImportedModel> {
  constructor(dataDir: string) {
    super(dataDir, {
      what: 'model',
      folder: 'models',
      code: 'model-invalid',
      importCommand: (name) => `starling model import ${name} FOLDER`,
      blobsOf: blobsOfModel,
    })
  }
}

export function blobsOfModel({ manifest, shards }: Pick<ImportedModel, 'manifest' | 'shards'>): Sha256[] {
  return [manifest.sha256, ...shards.map(({ sha256 }) => sha256)]
}

// The models that were imported under a name: one JSON file each in the data folder, beside the blobs that hold their
// shards.
import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { CausalLmConfig, Storage } from '@starling-grid/model'
import { describeError, GridError, type Sha256 } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { openFolderBlobs } from '../blobs/folder.ts'
import { writeWhole } from '../datasets/catalog.ts'

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

const NAME = /^[a-z0-9][a-z0-9._-]{0,59}$/
const ENDING = '.json'

export class ModelCatalog {
  readonly folder: string
  readonly #dataDir: string
  #blobs: Promise<BlobStore> | undefined

  constructor(dataDir: string) {
    this.#dataDir = dataDir
    this.folder = join(dataDir, 'models')
  }

  /** Where shards lie: the coordinator's own blobs when it uses the same data folder. */
  blobs(): Promise<BlobStore> {
    this.#blobs ??= openFolderBlobs(join(this.#dataDir, 'blobs'))
    return this.#blobs
  }

  /** Sorted. */
  async names(): Promise<string[]> {
    const files = await readdir(this.folder).catch(() => [])
    return files
      .filter((file) => file.endsWith(ENDING))
      .map((file) => file.slice(0, -ENDING.length))
      .filter((name) => NAME.test(name))
      .sort()
  }

  /** @throws GridError 'model-invalid' when there is none, or its file is damaged */
  async get(name: string): Promise<ImportedModel> {
    const found = await this.find(name)
    if (found !== undefined) return found
    throw new GridError(
      'model-invalid',
      `expected the name of an imported model, got ${JSON.stringify(name.slice(0, 80))} ` +
        `(known: ${(await this.names()).join(', ') || 'none'}); import it with: starling model import NAME FOLDER`,
    )
  }

  async find(name: string): Promise<ImportedModel | undefined> {
    if (!NAME.test(name)) return undefined
    const path = this.#pathOf(name)
    const text = await readFile(path, 'utf8').catch(() => undefined)
    if (text === undefined) return undefined
    try {
      return JSON.parse(text) as ImportedModel
    } catch (cause) {
      throw new GridError(
        'model-invalid',
        `expected a model in ${path}, got: ${describeError(cause)}; delete the model and import it again`,
        { cause },
      )
    }
  }

  /** Durable when it resolves. @throws GridError 'disk-failed' */
  async put(model: ImportedModel): Promise<void> {
    await writeWhole(this.#pathOf(model.name), JSON.stringify(model))
  }

  /** Blobs that no other model has are removed, but those that `isUsed` keeps. */
  async delete(name: string, isUsed: (blob: Sha256) => boolean): Promise<ImportedModel> {
    const model = await this.get(name)
    const others = await this.#blobsBut(name)
    await rm(this.#pathOf(name), { force: true })
    const blobs = await this.blobs()
    for (const blob of blobsOfModel(model)) if (!others.has(blob) && !isUsed(blob)) await blobs.delete(blob)
    return model
  }

  /** What every imported model needs. */
  async blobNames(): Promise<ReadonlySet<Sha256>> {
    return this.#blobsBut(undefined)
  }

  async #blobsBut(name: string | undefined): Promise<ReadonlySet<Sha256>> {
    const names = (await this.names()).filter((other) => other !== name)
    return new Set((await Promise.all(names.map((other) => this.get(other)))).flatMap(blobsOfModel))
  }

  #pathOf(name: string): string {
    return join(this.folder, `${name}${ENDING}`)
  }
}

export function blobsOfModel({ manifest, shards }: Pick<ImportedModel, 'manifest' | 'shards'>): Sha256[] {
  return [manifest.sha256, ...shards.map(({ sha256 }) => sha256)]
}

/** @throws GridError 'usage' */
export function requireModelName(name: string): void {
  if (NAME.test(name)) return
  throw new GridError(
    'usage',
    'expected a name of at most 60 small letters, digits, dots, dashes and underscores that begins with a letter or ' +
      `digit, got ${JSON.stringify(name.slice(0, 80))}; choose another`,
  )
}

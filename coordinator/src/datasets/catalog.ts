// The datasets that were imported under a name: one JSON file each in the data folder, beside the blobs that hold their
// shards. A file appears when its import is complete; while it runs, its state lies beside it (import-state.ts).
import { open, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type ChatForm, describeError, GridError, type Sha256, type ShardRef } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { openFolderBlobs } from '../blobs/folder.ts'
import type { TargetKind } from './fit.ts'
import type { Summary } from './statistics.ts'

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
  /** of a text: `samples` are tokens */
  readonly train: readonly ShardRef[]
  readonly validation: readonly ShardRef[]
}

const NAME = /^[a-z0-9][a-z0-9._-]{0,59}$/
const ENDING = '.json'
const OWN_FOLDER = 0o700
const OWN_FILE = 0o600

export class Catalog {
  readonly folder: string
  readonly dataDir: string
  #blobs: Promise<BlobStore> | undefined

  constructor(dataDir: string) {
    this.dataDir = dataDir
    this.folder = join(dataDir, 'datasets')
  }

  /** Where shards lie: the coordinator's own blobs when it uses the same data folder. */
  blobs(): Promise<BlobStore> {
    this.#blobs ??= openFolderBlobs(join(this.dataDir, 'blobs'))
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

  /** @throws GridError 'dataset-unreadable' when there is none, or its file is damaged */
  async get(name: string): Promise<NamedDataset> {
    const found = await this.find(name)
    if (found !== undefined) return found
    const names = await this.names()
    throw new GridError(
      'dataset-unreadable',
      `expected the name of an imported dataset, got ${JSON.stringify(name)} (known: ${names.join(', ') || 'none'}); ` +
        `import it with: starling dataset import ${NAME.test(name) ? name : 'NAME'} PATH`,
    )
  }

  async find(name: string): Promise<NamedDataset | undefined> {
    if (!NAME.test(name)) return undefined
    const path = this.#pathOf(name)
    const text = await readFile(path, 'utf8').catch(() => undefined)
    if (text === undefined) return undefined
    try {
      return JSON.parse(text) as NamedDataset
    } catch (cause) {
      throw new GridError(
        'dataset-unreadable',
        `expected a dataset in ${path}, got: ${describeError(cause)}; delete the dataset and import it again`,
        { cause },
      )
    }
  }

  /** Durable when it resolves. @throws GridError 'usage' for a bad name, 'disk-failed' */
  async put(dataset: NamedDataset): Promise<void> {
    requireDatasetName(dataset.name)
    await writeWhole(this.#pathOf(dataset.name), JSON.stringify(dataset))
  }

  /** Shards that no other dataset has are removed, but those that `isUsed` keeps. */
  async delete(name: string, isUsed: (shard: Sha256) => boolean): Promise<NamedDataset> {
    const dataset = await this.get(name)
    const others = await Promise.all(
      (await this.names()).filter((other) => other !== name).map((other) => this.get(other)),
    )
    const shared = new Set(others.flatMap(shardsOf))
    await rm(this.#pathOf(name), { force: true })
    const blobs = await this.blobs()
    for (const shard of shardsOf(dataset)) if (!shared.has(shard) && !isUsed(shard)) await blobs.delete(shard)
    return dataset
  }

  #pathOf(name: string): string {
    return join(this.folder, `${name}${ENDING}`)
  }
}

export function shardsOf({ train, validation }: Pick<NamedDataset, 'train' | 'validation'>): Sha256[] {
  return [...train, ...validation].map(({ sha256 }) => sha256)
}

/** @throws GridError 'usage' */
export function requireDatasetName(name: string): void {
  if (NAME.test(name)) return
  throw new GridError(
    'usage',
    'expected a name of at most 60 small letters, digits, dots, dashes and underscores that begins with a letter or ' +
      `digit, got ${JSON.stringify(name.slice(0, 80))}; choose another`,
  )
}

/** Whole or not at all, and durable when it resolves. @throws GridError 'disk-failed' */
export async function writeWhole(path: string, text: string): Promise<void> {
  const aside = `${path}.${process.pid}.unfinished`
  try {
    await mkdir(join(path, '..'), { recursive: true, mode: OWN_FOLDER })
    const file = await open(aside, 'w', OWN_FILE)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(aside, path)
  } catch (cause) {
    await rm(aside, { force: true }).catch(() => undefined)
    throw new GridError(
      'disk-failed',
      `expected to write ${path}, got: ${describeError(cause)}; check the space and health of the disk`,
      { cause },
    )
  }
}

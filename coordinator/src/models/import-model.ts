// Import of a published language model under a name: its folder is read row by row and written as shards that
// volunteers keep by their hash.
import {
  fixedEntries,
  fromPublished,
  type CausalLmConfig,
  type FixedEntry,
  partName,
  parseModelSpec,
  publishedShape,
  rowsOf,
  type Storage,
  storeRows,
} from '@starling-grid/model'
import {
  BASE_FORMAT,
  type BaseManifest,
  type BaseShard,
  GridError,
  MAX_SHARD_BYTES,
  type StoredTensor,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { requireImportName } from '../named-imports.ts'
import type { ImportedModel, ModelCatalog } from './model-catalog.ts'
import { PublishedFolder } from './published-folder.ts'

/** Bytes from which a shard is written: a line of 20 Mbit/s brings it in two seconds. */
const SHARD_BYTES = MAX_SHARD_BYTES / 2
/** Any number of tokens fits: only the form of the model is asked for. */
const PROBE_TOKENS = 2

export interface ModelImport {
  readonly name: string
  readonly folder: string
  readonly storage: Storage
}

export interface ModelImportWatch {
  /** parameters that were written, of all */
  readonly onProgress?: (done: number, total: number) => void
  /** ISO 8601 */
  readonly now: () => string
}

/**
 * Durable when it resolves.
 * @throws GridError 'usage' for a bad or a known name, 'dataset-unreadable', 'model-invalid' of a family or a form that
 * is not computed here, 'disk-failed'
 */
export async function importModel(
  { name, folder, storage }: ModelImport,
  catalog: ModelCatalog,
  watch: ModelImportWatch,
): Promise<ImportedModel> {
  requireImportName(name)
  if ((await catalog.find(name)) !== undefined)
    throw new GridError(
      'usage',
      `expected the name of a new model, got ${name}, which is there; ` +
        `choose another, or delete it first with: starling model delete ${name}`,
    )
  const published = await PublishedFolder.open(folder)
  try {
    const { config, entries } = formOf(published)
    const writer = new ShardWriter(await catalog.blobs(), storage)
    const total = entries.reduce((sum, { length }) => sum + length, 0)
    let done = 0
    for (const entry of entries) {
      await writeEntry(published, entry, writer)
      watch.onProgress?.((done += entry.length), total)
    }
    const manifest = await writer.end()
    const model: ImportedModel = {
      name,
      importedAt: watch.now(),
      folder,
      config,
      published: published.config,
      parameters: total,
      storage,
      ...manifest,
      ...(await published.tokenizerFiles()),
    }
    await catalog.put(model)
    return model
  } finally {
    await published.close()
  }
}

export interface PublishedForm {
  readonly config: CausalLmConfig
  /** all parameters, in the order in which they are computed with */
  readonly entries: readonly FixedEntry[]
}

/** @throws GridError 'model-invalid', 'dataset-unreadable' when tensors of that form are missing */
export function formOf(published: PublishedFolder): PublishedForm {
  const spec = parseModelSpec({
    input: [PROBE_TOKENS],
    layers: [{ type: 'causal_lm', config: published.config, lora: {} }],
  })
  const [layer] = spec.layers
  if (layer?.type !== 'causal_lm') throw new Error('internal: a language model of another layer')
  const entries = fixedEntries(spec).filter(({ kind }) => kind === 'frozen')
  for (const entry of entries) requireTensor(published, entry)
  return { config: layer.config, entries }
}

function requireTensor(published: PublishedFolder, entry: FixedEntry): void {
  const name = storedName(published, entry.name)
  const [wanted, found] = [publishedShape(entry), name === undefined ? undefined : published.shapeOf(name)]
  if (found?.join() === wanted.join()) return
  throw new GridError(
    'dataset-unreadable',
    `expected ${entry.name} [${wanted.join(', ')}] in ${published.path}, ` +
      `got ${found === undefined ? 'no such tensor' : `[${found.join(', ')}]`}; ` +
      'take the model that its config.json describes',
  )
}

/** Some models are published without their head, and their names without its prefix. */
export function storedName(published: PublishedFolder, name: string): string | undefined {
  const names = [name, name.replace(/^(model|transformer)\./, '')]
  return names.find((one) => published.shapeOf(one) !== undefined)
}

/** All values of a parameter, in our order. */
export async function valuesOf(published: PublishedFolder, entry: FixedEntry): Promise<Float32Array> {
  const { rows } = rowsOf({ shape: publishedShape(entry) })
  return fromPublished(entry, await published.rows(storedName(published, entry.name) ?? entry.name, 0, rows))
}

async function writeEntry(published: PublishedFolder, entry: FixedEntry, writer: ShardWriter): Promise<void> {
  const { rows, columns } = rowsOf(entry)
  const name = storedName(published, entry.name) ?? entry.name
  // A matrix whose rows and columns are exchanged has to be there whole.
  const whole = entry.transposed ? await valuesOf(published, entry) : undefined
  const step = Math.max(1, Math.floor(SHARD_BYTES / (Float32Array.BYTES_PER_ELEMENT * columns)))
  for (let row = 0; row < rows; row += step) {
    const count = Math.min(step, rows - row)
    const values = whole?.subarray(row * columns, (row + count) * columns) ?? (await published.rows(name, row, count))
    if (!values.every(Number.isFinite))
      throw new GridError(
        'dataset-unreadable',
        `expected finite numbers in ${name}, got NaN or infinity; fetch the model again`,
      )
    await writer.add(entry, { row, rows: count, values: values.slice() })
  }
}

interface Rows {
  readonly row: number
  readonly rows: number
  readonly values: Float32Array
}

class ShardWriter {
  readonly #blobs: BlobStore
  readonly #storage: Storage
  readonly #shards: BaseShard[] = []
  #tensors = new Map<string, StoredTensor>()
  #parts: BaseShard['parts'][number][] = []
  #bytes = 0

  constructor(blobs: BlobStore, storage: Storage) {
    this.#blobs = blobs
    this.#storage = storage
  }

  async add({ name, shape }: FixedEntry, { row, rows, values }: Rows): Promise<void> {
    const columns = shape.at(-1) ?? 1
    const form = { shape: shape.length < 2 ? [columns] : [rows, columns], storage: this.#storage }
    const stored = storeRows(partName(name, row), values, form)
    const bytes = stored.reduce((sum, [, { data }]) => sum + data.byteLength, 0)
    if (this.#bytes > 0 && this.#bytes + bytes > SHARD_BYTES) await this.#flush()
    for (const [key, tensor] of stored) this.#tensors.set(key, tensor)
    this.#parts.push({ name, row, rows })
    this.#bytes += bytes
  }

  async end(): Promise<Pick<ImportedModel, 'manifest' | 'shards'>> {
    await this.#flush()
    const manifest: BaseManifest = { format: BASE_FORMAT, shards: this.#shards }
    const sha256 = await this.#blobs.put(new TextEncoder().encode(JSON.stringify(manifest)))
    return { manifest: { sha256 }, shards: this.#shards.map((shard) => ({ sha256: shard.sha256, bytes: shard.bytes })) }
  }

  async #flush(): Promise<void> {
    if (this.#bytes === 0) return
    const bytes = writeSafetensors(this.#tensors)
    this.#shards.push({ sha256: await this.#blobs.put(bytes), bytes: bytes.byteLength, parts: this.#parts })
    this.#tensors = new Map()
    this.#parts = []
    this.#bytes = 0
  }
}

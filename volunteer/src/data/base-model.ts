// The frozen parameters of an imported model: fetched from the coordinator by hash once, kept in the host's cache, and
// read tensor by tensor.
import {
  fixedEntries,
  type FixedEntry,
  type ModelSpec,
  packRows,
  partName,
  readRows,
  rowsOf,
  storageOf,
} from '@starling-grid/model'
import {
  type BaseManifest,
  type BaseShard,
  GridError,
  MAX_BASE_SOURCES,
  readBaseManifest,
  readSafetensors,
  type Sha256,
  sha256Name,
  type StoredTensor,
} from '@starling-grid/protocol'
import { packedRow, type PackedStorage } from '@starling-grid/shaders'
import type { FrozenSource, PackedSource } from '../graph/frozen-source.ts'
import { isMatrix } from '../graph/packed.ts'
import { fetchedBlob, type BlobPlaces } from './shards.ts'

/** Shards on their way at once: one of each member that gives some. */
const AHEAD = MAX_BASE_SOURCES

interface PlacedPart {
  readonly shard: BaseShard
  readonly row: number
  readonly rows: number
}

/**
 * With the manifest and a first shard, which says how matrices are stored. `onProgress`: bytes that are here, of all.
 * @throws GridError 'shard-corrupt' when the manifest is damaged, or has not what the model needs
 */
export async function openBaseModel(
  spec: ModelSpec,
  places: BlobPlaces,
  onProgress: (done: number, total: number) => void = () => undefined,
): Promise<FrozenSource | undefined> {
  if (spec.base === undefined) return undefined
  const manifest = readBaseManifest(await fetchedBlob(sha256Name(spec.base), places))
  const model = new BaseModel(spec, manifest, places, onProgress)
  await model.look()
  return model
}

class BaseModel implements FrozenSource {
  readonly #entries: ReadonlyMap<string, FixedEntry>
  readonly #parts = new Map<string, PlacedPart[]>()
  readonly #places: BlobPlaces
  readonly #onProgress: (done: number, total: number) => void
  readonly #total: number
  readonly #seen = new Set<Sha256>()
  #done = 0
  #storage: PackedStorage | undefined
  /** fetched before they are asked for, so that several members serve at once */
  readonly #ahead = new Map<Sha256, Promise<Uint8Array>>()
  readonly #order: readonly BaseShard[]
  /** tensors lie in the order in which they are asked for: one shard serves several */
  #last: { readonly name: Sha256; readonly tensors: ReadonlyMap<string, StoredTensor> } | undefined

  // oxlint-disable-next-line max-params -- of openBaseModel alone
  constructor(
    spec: ModelSpec,
    { shards }: BaseManifest,
    places: BlobPlaces,
    onProgress: (done: number, total: number) => void,
  ) {
    this.#entries = new Map(fixedEntries(spec).map((entry) => [entry.name, entry]))
    this.#places = places
    this.#onProgress = onProgress
    this.#order = shards
    this.#total = shards.reduce((sum, { bytes }) => sum + bytes, 0)
    for (const shard of shards)
      for (const { name, row, rows } of shard.parts) {
        const parts = this.#parts.get(name) ?? []
        parts.push({ shard, row, rows })
        this.#parts.set(name, parts)
      }
    for (const [name, entry] of this.#entries) if (entry.kind === 'frozen') requireWhole(entry, this.#parts.get(name))
  }

  get packed(): PackedSource | undefined {
    const storage = this.#storage
    return storage && { storage, read: (name) => this.#readPacked(name, storage) }
  }

  /** An import stores all matrices alike. */
  async look(): Promise<void> {
    const name = [...this.#entries.values()].find(isMatrix)?.name
    const [part] = (name !== undefined && this.#parts.get(name)) || []
    if (name === undefined || part === undefined) return
    const { sha256 } = part.shard
    const bytes = await fetchedBlob(sha256, this.#places)
    this.#ahead.set(sha256, Promise.resolve(bytes))
    const storage = storageOf(partName(name, part.row), readSafetensors(bytes).tensors)
    this.#storage = storage === 'f32' ? undefined : storage
  }

  async read(name: string): Promise<Float32Array> {
    const entry = this.#entryOf(name)
    const { columns } = rowsOf(entry)
    const values = new Float32Array(entry.length)
    for (const { shard, row, rows } of this.#parts.get(name) ?? []) {
      const tensors = await this.#tensorsOf(shard)
      values.set(readRows(partName(name, row), tensors, { length: rows * columns, columns }), row * columns)
    }
    return values
  }

  async #readPacked(name: string, storage: PackedStorage): Promise<Int32Array> {
    const { rows: all, columns } = rowsOf(this.#entryOf(name))
    const { words } = packedRow(columns, storage)
    const packed = new Int32Array(all * words)
    for (const { shard, row, rows } of this.#parts.get(name) ?? []) {
      const tensors = await this.#tensorsOf(shard)
      packed.set(packRows(partName(name, row), tensors, { rows, columns, storage }), row * words)
    }
    return packed
  }

  #entryOf(name: string): FixedEntry {
    const entry = this.#entries.get(name)
    if (entry === undefined) throw new Error(`internal: no frozen parameter ${name}`)
    return entry
  }

  async #tensorsOf({ sha256, bytes }: BaseShard): Promise<ReadonlyMap<string, StoredTensor>> {
    if (this.#last?.name === sha256) return this.#last.tensors
    const { tensors } = readSafetensors(await this.#bytesOf(sha256))
    this.#last = { name: sha256, tensors }
    if (!this.#seen.has(sha256)) this.#onProgress((this.#done += bytes), this.#total)
    this.#seen.add(sha256)
    return tensors
  }

  /** Those behind it begin as well: tensors are asked for in the order of the shards. */
  #bytesOf(name: Sha256): Promise<Uint8Array> {
    const at = this.#order.findIndex(({ sha256 }) => sha256 === name)
    for (const { sha256 } of this.#order.slice(at, at + AHEAD)) {
      if (this.#ahead.has(sha256)) continue
      const coming = fetchedBlob(sha256, this.#places)
      coming.catch(() => this.#ahead.delete(sha256)) // the next read tries again
      this.#ahead.set(sha256, coming)
    }
    const bytes = this.#ahead.get(name) ?? fetchedBlob(name, this.#places)
    this.#ahead.delete(name)
    return bytes
  }
}

/** Every row once. @throws GridError 'shard-corrupt' */
function requireWhole(entry: FixedEntry, parts: readonly PlacedPart[] = []): void {
  let next = 0
  for (const { row, rows } of parts.toSorted((a, b) => a.row - b.row)) {
    if (row !== next) break
    next = row + rows
  }
  if (next === rowsOf(entry).rows) return
  throw new GridError(
    'shard-corrupt',
    `expected all ${rowsOf(entry).rows} rows of ${entry.name} in the base model, got ${next}; ` +
      "ask the coordinator's operator to import the model again",
  )
}

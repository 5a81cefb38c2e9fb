// Shards: fetched from the coordinator once, checked against their SHA-256 name every time, kept in the host's cache.
import {
  type DatasetManifest,
  float32Values,
  GridError,
  int32Values,
  isText,
  readSafetensors,
  type Sha256,
  sha256Of,
  type ShardRef,
  storedElementsOf,
  type StoredTensor,
  windowPlaces,
} from '@starling-grid/protocol'
import type { ShardCache } from '../host.ts'

/** One shard, decoded: samples with their targets, or a piece of text. */
export type DecodedShard = SampleShard | DecodedTextShard

export type StoredValues = Uint8Array | Float32Array | Int32Array

export interface SampleShard {
  /** (samples, …storedShape), stored values */
  readonly x: StoredValues
  /** classes (samples,), or values or labels (samples, size) */
  readonly y: StoredValues
}

export interface DecodedTextShard {
  /** each below the manifest's number of classes, which the executor checks of what it gets */
  readonly tokens: Uint16Array | Int32Array
}

/** Where what a hash names comes from. */
export interface BlobPlaces {
  readonly fetchBytes: (name: Sha256) => Promise<Uint8Array>
  readonly cache: ShardCache
}

/**
 * From the cache, or fetched and kept there.
 * @throws GridError 'shard-corrupt' when even the coordinator's bytes do not match the name
 */
export async function fetchedBlob(name: Sha256, { fetchBytes, cache }: BlobPlaces): Promise<Uint8Array> {
  const cached = await cache.get(name).catch(() => undefined)
  if (cached !== undefined && (await sha256Of(cached)) === name) return cached
  const bytes = await fetchBytes(name)
  const found = await sha256Of(bytes)
  if (found !== name)
    throw new GridError(
      'shard-corrupt',
      `expected shard ${name.slice(0, 12)}, got bytes of ${found.slice(0, 12)}; ` +
        "ask the coordinator's operator to import the dataset again",
    )
  await cache.put(name, bytes).catch(() => undefined) // a full cache costs a later download, nothing else
  return bytes
}

/** Decoded shards kept in memory: a few MB each. */
const KEPT_SHARDS = 64

export class Shards {
  readonly #manifest: DatasetManifest
  readonly #fetchBytes: (name: Sha256) => Promise<Uint8Array>
  readonly #cache: ShardCache
  readonly #decoded = new Map<Sha256, Promise<DecodedShard>>()

  constructor(manifest: DatasetManifest, fetchBytes: (name: Sha256) => Promise<Uint8Array>, cache: ShardCache) {
    this.#manifest = manifest
    this.#fetchBytes = fetchBytes
    this.#cache = cache
  }

  /** @throws GridError 'shard-corrupt' when even the coordinator's bytes do not match the name */
  get(ref: ShardRef): Promise<DecodedShard> {
    const decoded = this.#decoded.get(ref.sha256)
    if (decoded !== undefined) return decoded
    const loading = this.#load(ref)
    this.#decoded.set(ref.sha256, loading)
    loading.catch(() => this.#decoded.delete(ref.sha256))
    if (this.#decoded.size > KEPT_SHARDS)
      for (const oldest of this.#decoded.keys()) return (this.#decoded.delete(oldest), loading)
    return loading
  }

  async #load(ref: ShardRef): Promise<DecodedShard> {
    return this.#decode(ref, await fetchedBlob(ref.sha256, { fetchBytes: this.#fetchBytes, cache: this.#cache }))
  }

  #decode(ref: ShardRef, bytes: Uint8Array): DecodedShard {
    const { tensors } = readSafetensors(bytes)
    if (this.#manifest.labelled === true) return this.#decodeLabelled(ref, tensors)
    if (isText(this.#manifest)) return this.#decodeText(ref, tensors)
    const { inputType = 'U8', target, classes } = this.#manifest
    const elements = ref.samples * storedElementsOf(this.#manifest)
    const targets = TARGETS[target ?? 'classes']
    return {
      x: valuesOf(ref, tensors, { name: 'x', dtype: inputType, length: elements }),
      y: valuesOf(ref, tensors, {
        name: 'y',
        dtype: targets,
        length: ref.samples * (target === undefined ? 1 : classes),
      }),
    }
  }

  #decodeLabelled(ref: ShardRef, tensors: ReadonlyMap<string, StoredTensor>): SampleShard {
    const length = ref.samples * storedElementsOf(this.#manifest)
    const part = (name: 'x' | 'y') => valuesOf(ref, tensors, { name, dtype: 'I32', length })
    return { x: part('x'), y: part('y') }
  }

  #decodeText(ref: ShardRef, tensors: ReadonlyMap<string, StoredTensor>): DecodedTextShard {
    const [context = 0] = this.#manifest.inputShape
    const stored = tensors.get('tokens')
    const length = stored?.shape[0] ?? 0
    if (
      (stored?.dtype !== 'U16' && stored?.dtype !== 'I32') ||
      stored.shape.length !== 1 ||
      windowPlaces({ tokens: length, context }) === 0
    )
      throw new GridError(
        'shard-corrupt',
        `expected tokens U16 or I32 in shard ${ref.sha256.slice(0, 12)}, more than the ${context} of a sample, ` +
          'got other tensors',
      )
    if (stored.dtype === 'I32') return { tokens: int32Values(stored) }
    const view = new DataView(stored.data.buffer, stored.data.byteOffset, stored.data.byteLength)
    return { tokens: Uint16Array.from({ length }, (_, i) => view.getUint16(2 * i, true)) }
  }
}

/** How targets are stored, by what they are. */
const TARGETS = { classes: 'I32', values: 'F32', labels: 'U8' } as const

interface WantedTensor {
  readonly name: 'x' | 'y'
  readonly dtype: 'U8' | 'F32' | 'I32'
  /** values */
  readonly length: number
}

function valuesOf(
  ref: ShardRef,
  tensors: ReadonlyMap<string, StoredTensor>,
  { name, dtype, length }: WantedTensor,
): StoredValues {
  const stored = tensors.get(name)
  const found = stored?.shape.reduce((product, size) => product * size, 1)
  if (stored?.dtype !== dtype || found !== length)
    throw new GridError(
      'shard-corrupt',
      `expected ${name} of ${length} ${dtype} in shard ${ref.sha256.slice(0, 12)}, ` +
        `got ${stored === undefined ? 'none' : `${found} ${stored.dtype}`}`,
    )
  return typed(stored)
}

function typed(stored: StoredTensor): StoredValues {
  if (stored.dtype === 'F32') return float32Values(stored)
  return stored.dtype === 'I32' ? int32Values(stored) : stored.data
}

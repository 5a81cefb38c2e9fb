// Shards: fetched from the coordinator once, checked against their SHA-256 name every time, kept in the host's cache.
import {
  type DatasetManifest,
  GridError,
  hex,
  int32Values,
  readSafetensors,
  type Sha256,
  sha256Name,
  type ShardRef,
  type StoredTensor,
  windowPlaces,
} from '@starling-grid/protocol'
import type { ShardCache } from '../host.ts'

/** One shard, decoded: samples with a class each, or a piece of text. */
export type DecodedShard = SampleShard | DecodedTextShard

export interface SampleShard {
  /** (samples, …inputShape), stored values */
  readonly x: Uint8Array
  /** (samples,) */
  readonly y: Int32Array
}

export interface DecodedTextShard {
  /** each below the manifest's number of classes, which the executor checks of what it gets */
  readonly tokens: Uint16Array
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
    const known = this.#decoded.get(ref.sha256)
    if (known !== undefined) return known
    const loading = this.#load(ref)
    this.#decoded.set(ref.sha256, loading)
    loading.catch(() => this.#decoded.delete(ref.sha256))
    if (this.#decoded.size > KEPT_SHARDS)
      for (const oldest of this.#decoded.keys()) return (this.#decoded.delete(oldest), loading)
    return loading
  }

  async #load(ref: ShardRef): Promise<DecodedShard> {
    const cached = await this.#cache.get(ref.sha256).catch(() => undefined)
    if (cached !== undefined && (await sha256Of(cached)) === ref.sha256) return this.#decode(ref, cached)
    const bytes = await this.#fetchBytes(ref.sha256)
    const found = await sha256Of(bytes)
    if (found !== ref.sha256)
      throw new GridError(
        'shard-corrupt',
        `expected shard ${ref.sha256.slice(0, 12)}, got bytes of ${found.slice(0, 12)}; ` +
          "ask the coordinator's operator to import the dataset again",
      )
    await this.#cache.put(ref.sha256, bytes).catch(() => undefined) // a full cache costs a later download, nothing else
    return this.#decode(ref, bytes)
  }

  #decode(ref: ShardRef, bytes: Uint8Array): DecodedShard {
    const { tensors } = readSafetensors(bytes)
    if (this.#manifest.vocabulary !== undefined) return this.#decodeText(ref, tensors)
    const x = tensors.get('x')
    const y = tensors.get('y')
    const elements = ref.samples * this.#manifest.inputShape.reduce((product, size) => product * size, 1)
    if (
      x?.dtype !== 'U8' ||
      x.data.byteLength !== elements ||
      y?.dtype !== 'I32' ||
      y.data.byteLength !== 4 * ref.samples
    )
      throw new GridError(
        'shard-corrupt',
        `expected x U8 (${ref.samples}, ${this.#manifest.inputShape.join(', ')}) and y I32 (${ref.samples}) ` +
          `in shard ${ref.sha256.slice(0, 12)}, got other tensors`,
      )
    return { x: x.data, y: int32Values(y) }
  }

  #decodeText(ref: ShardRef, tensors: ReadonlyMap<string, StoredTensor>): DecodedTextShard {
    const [context = 0] = this.#manifest.inputShape
    const stored = tensors.get('tokens')
    if (
      stored?.dtype !== 'U16' ||
      windowPlaces({ tokens: stored.data.byteLength / Uint16Array.BYTES_PER_ELEMENT, context }) === 0
    )
      throw new GridError(
        'shard-corrupt',
        `expected tokens U16 in shard ${ref.sha256.slice(0, 12)}, more than the ${context} of a sample, ` +
          'got other tensors',
      )
    const view = new DataView(stored.data.buffer, stored.data.byteOffset, stored.data.byteLength)
    return { tokens: Uint16Array.from({ length: stored.data.byteLength / 2 }, (_, i) => view.getUint16(2 * i, true)) }
  }
}

/** Hex SHA-256 by the platform's own implementation. */
export async function sha256Of(bytes: Uint8Array): Promise<Sha256> {
  return sha256Name(hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as BufferSource))))
}

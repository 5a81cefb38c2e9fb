// A dataset as volunteers see it: content-addressed shards, cut into blocks of samples that are leased.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { GridError } from './errors.ts'
import { blockIndex, type BlockId } from './ids.ts'
import { MAX_BLOCKS, MAX_SHARD_BYTES, MAX_VOCABULARY_LENGTH } from './limits.ts'
import { Count, Sha256Schema, strict } from './schema.ts'

const ShardRefSchema = strict({
  sha256: Sha256Schema,
  bytes: Type.Integer({ minimum: 1, maximum: MAX_SHARD_BYTES }),
  samples: Type.Integer({ minimum: 1, maximum: 10_000_000 }),
})
/**
 * One safetensors file. Of samples with classes: tensors `x` U8 (samples, …inputShape) and `y` I32 (samples,); of a
 * text: `tokens` U16 (n,), of which each epoch takes `samples` windows (windows.ts).
 */
export type ShardRef = Static<typeof ShardRefSchema>

export const DatasetManifestSchema = strict({
  name: Type.String({ maxLength: 80 }),
  /** where the samples come from, for people */
  source: Type.String({ maxLength: 200 }),
  inputShape: Type.Array(Type.Integer({ minimum: 1, maximum: 1_000_000 }), { minItems: 1, maxItems: 4 }),
  classes: Count,
  /** a text: its characters in the order of their numbers; a sample is inputShape[0] tokens */
  vocabulary: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_VOCABULARY_LENGTH })),
  /** multiplies stored U8 values */
  inputScale: Type.Number({ minimum: 0, maximum: 1 }),
  train: Type.Array(ShardRefSchema, { minItems: 1, maxItems: 100_000 }),
  validation: Type.Array(ShardRefSchema, { maxItems: 100_000 }),
})
export type DatasetManifest = Static<typeof DatasetManifestSchema>

/** Where one block lies: `samples` rows of a shard from row `start`. */
export interface BlockRange {
  readonly shard: ShardRef
  readonly start: number
  readonly samples: number
}

/**
 * The blocks of a split, by index. They are computed on demand: a dishonest coordinator may name more of them than
 * memory holds. Blocks do not cross shards; the last of a shard may be shorter.
 */
export class BlockRanges implements Iterable<BlockRange> {
  readonly #shards: readonly ShardRef[]
  readonly #blockSamples: number
  /** number of the first block of each shard */
  readonly #firsts: Float64Array
  readonly length: number

  constructor(shards: readonly ShardRef[], blockSamples: number) {
    this.#shards = shards
    this.#blockSamples = blockSamples
    this.#firsts = new Float64Array(shards.length)
    let blocks = 0
    for (const [i, { samples }] of shards.entries()) {
      this.#firsts[i] = blocks
      blocks += Math.ceil(samples / blockSamples)
    }
    this.length = blocks
  }

  /** undefined outside the split */
  at(index: number): BlockRange | undefined {
    if (!Number.isInteger(index) || index < 0 || index >= this.length) return undefined
    const place = this.#shardOf(index)
    const shard = this.#shards[place]
    if (shard === undefined) return undefined
    const start = (index - (this.#firsts[place] ?? 0)) * this.#blockSamples
    return { shard, start, samples: Math.min(this.#blockSamples, shard.samples - start) }
  }

  *[Symbol.iterator](): Iterator<BlockRange> {
    for (const shard of this.#shards)
      for (let start = 0; start < shard.samples; start += this.#blockSamples)
        yield { shard, start, samples: Math.min(this.#blockSamples, shard.samples - start) }
  }

  /** Place of the last shard that begins at this block or before it, by bisection. */
  #shardOf(index: number): number {
    let [low, high] = [0, this.#firsts.length]
    while (high - low > 1) {
      const middle = (low + high) >> 1
      if ((this.#firsts[middle] ?? 0) <= index) low = middle
      else high = middle
    }
    return low
  }
}

export function blockRanges(shards: readonly ShardRef[], blockSamples: number): BlockRanges {
  return new BlockRanges(shards, blockSamples)
}

/** Values of one sample. */
export function elementsOf({ inputShape }: Pick<DatasetManifest, 'inputShape'>): number {
  return inputShape.reduce((product, size) => product * size, 1)
}

/**
 * Checks, before any fetch, that shards can hold what the manifest declares.
 * @throws GridError 'shard-corrupt'
 */
export function requirePossible(manifest: DatasetManifest, blockSamples: number): void {
  const blocks =
    new BlockRanges(manifest.train, blockSamples).length + new BlockRanges(manifest.validation, blockSamples).length
  if (blocks > 2 * MAX_BLOCKS) throw impossible(`at most ${MAX_BLOCKS} blocks of a split, got ${blocks} in all`)
  if (manifest.vocabulary !== undefined) return // windows overlap: their number is no matter of bytes
  const elements = elementsOf(manifest)
  for (const { samples, bytes } of [...manifest.train, ...manifest.validation])
    if (samples * elements > bytes)
      throw impossible(
        `at most ${bytes} bytes of samples in a shard of ${bytes}, got ${samples} samples of ${elements}`,
      )
}

function impossible(what: string): GridError {
  return new GridError('shard-corrupt', `expected ${what}; ask the coordinator's operator to import the dataset again`)
}

/**
 * Range of a training or validation block. @throws Error (internal) on an index outside the split: codecs and plans
 * check it before
 */
export function rangeOf(ranges: BlockRanges, block: BlockId): BlockRange {
  const range = ranges.at(blockIndex(block))
  if (range === undefined) throw new Error(`internal: block ${block} is outside the dataset`)
  return range
}

export function samplesIn(shards: readonly ShardRef[]): number {
  return shards.reduce((sum, shard) => sum + shard.samples, 0)
}

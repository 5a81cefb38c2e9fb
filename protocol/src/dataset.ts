// A dataset as volunteers see it: content-addressed shards, cut into blocks of samples that are leased.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { blockIndex, type BlockId } from './ids.ts'
import { MAX_SHARD_BYTES, MAX_VOCABULARY_LENGTH } from './limits.ts'
import { Count, Sha256Schema, strict } from './schema.ts'

const ShardRefSchema = strict({
  sha256: Sha256Schema,
  bytes: Type.Integer({ minimum: 1, maximum: MAX_SHARD_BYTES }),
  samples: Type.Integer({ minimum: 1, maximum: 10_000_000 }),
})
/**
 * One safetensors file. Of samples with classes: tensors `x` U8 (samples, …inputShape) and `y` I32 (samples,); of a text: `tokens`
 * U16 (n,), of which each epoch takes `samples` windows (windows.ts).
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

/** The blocks of a split, by index. Blocks do not cross shards; the last of a shard may be shorter. */
export function blockRanges(shards: readonly ShardRef[], blockSamples: number): BlockRange[] {
  const ranges: BlockRange[] = []
  for (const shard of shards)
    for (let start = 0; start < shard.samples; start += blockSamples) ranges.push({ shard, start, samples: Math.min(blockSamples, shard.samples - start) })
  return ranges
}

/** Range of a training or validation block. @throws Error (internal) on an index outside the split: codecs and plans check it before */
export function rangeOf(ranges: readonly BlockRange[], block: BlockId): BlockRange {
  const range = ranges[blockIndex(block)]
  if (range === undefined) throw new Error(`internal: block ${block} is outside the dataset`)
  return range
}

export function samplesIn(shards: readonly ShardRef[]): number {
  return shards.reduce((sum, shard) => sum + shard.samples, 0)
}

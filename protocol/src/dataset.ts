// A dataset as volunteers see it: content-addressed shards, cut into blocks of samples that are leased.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { GridError } from './errors.ts'
import { blockIndex, type BlockId } from './ids.ts'
import { MAX_BLOCKS, MAX_NAME_LENGTH, MAX_SHARD_BYTES, MAX_VOCABULARY_LENGTH } from './limits.ts'
import { Count, FiniteNumber, Sha256Schema, strict } from './schema.ts'

/** Means in the manifest of a dataset: numbers of a flat sample that are normalised each by itself. */
export const MAX_NORMALIZED = 1024
/** Names of classes in the manifest of a dataset; ImageNet has 1000. */
export const MAX_CLASS_NAMES = 1000

export const ShardRefSchema = strict({
  sha256: Sha256Schema,
  bytes: Type.Integer({ minimum: 1, maximum: MAX_SHARD_BYTES }),
  samples: Type.Integer({ minimum: 1, maximum: 10_000_000 }),
})
/**
 * One safetensors file. Of samples: tensors `x` U8 or F32 (samples, …shape) and `y`. That is I32 (samples,) of classes,
 * F32 (samples, size) of values, U8 (samples, size) of labels. Of a text: `tokens` U16 or I32 (n,), of which each epoch
 * takes `samples` windows (windows.ts).
 */
export type ShardRef = Static<typeof ShardRefSchema>

/** Pixels by which an image is moved or cut. */
const Pixels = Type.Integer({ minimum: 1, maximum: 4096 })

/**
 * What volunteers do to each training image, by chance that is a function of seed, epoch, block and sample. Every
 * member and every audit draws the same.
 */
export const AugmentSchema = strict({
  /** moves by up to this many pixels each way; what enters is 0 */
  shift: Type.Optional(Pixels),
  /** mirrors half of the images; `both`: a quarter each way, and a quarter both ways */
  flip: Type.Optional(Type.Union([Type.Literal('horizontal'), Type.Literal('vertical'), Type.Literal('both')])),
  /** height and width that are cut out at any place; validation takes the middle */
  crop: Type.Optional(Type.Tuple([Pixels, Pixels])),
  /** brightness, contrast and saturation change by up to this part of themselves */
  color: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
})
export type Augment = Static<typeof AugmentSchema>

/** Names of datasets: also file names. */
export const DatasetNameSchema = Type.String({
  pattern: '^[a-z0-9][a-z0-9._-]{0,59}$',
  title: 'a name of at most 60 small letters, digits, dots, dashes and underscores',
})

/** The dataset of a job: one that was imported under a name, or one that is read when the job is submitted. */
export const JobDatasetSchema = Type.Union([
  strict({
    source: Type.Optional(Type.Literal('named')),
    name: DatasetNameSchema,
    /** inputs get mean 0 and deviation 1, by the training samples; absent: so for numbers, not for pixels */
    normalize: Type.Optional(Type.Boolean()),
    augment: Type.Optional(AugmentSchema),
    /** of a text: windows that an epoch trains on; as many as lie side by side where it is absent */
    windowsPerEpoch: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000_000 })),
  }),
  strict({ source: Type.Literal('digits') }),
  strict({ source: Type.Literal('mnist'), folder: Type.String({ maxLength: 4096 }) }),
  strict({
    source: Type.Literal('text'),
    /** a file of UTF-8 text */
    path: Type.String({ minLength: 1, maxLength: 4096 }),
    /** what a token is */
    tokens: Type.Literal('characters'),
    /** windows that an epoch trains on; as many as lie side by side in the text where it is absent */
    windowsPerEpoch: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000_000 })),
  }),
])
export type JobDataset = Static<typeof JobDatasetSchema>

const ShapeSchema = Type.Array(Type.Integer({ minimum: 1, maximum: 1_000_000 }), { minItems: 1, maxItems: 4 })
const PerChannel = Type.Array(FiniteNumber, { minItems: 1, maxItems: MAX_NORMALIZED })

export const DatasetManifestSchema = strict({
  name: Type.String({ maxLength: 80 }),
  /** where the samples come from, for people */
  source: Type.String({ maxLength: 200 }),
  /** of a sample as the model takes it */
  inputShape: ShapeSchema,
  /** of a sample in the shards, where a crop makes another of it */
  storedShape: Type.Optional(ShapeSchema),
  /** stored inputs; absent: U8 */
  inputType: Type.Optional(Type.Union([Type.Literal('U8'), Type.Literal('F32')])),
  /** of a model of this dataset: classes, tokens, values or labels */
  classes: Count,
  /** what a target is; absent: a class, or a text's next token */
  target: Type.Optional(Type.Union([Type.Literal('values'), Type.Literal('labels')])),
  classNames: Type.Optional(Type.Array(Type.String({ maxLength: MAX_NAME_LENGTH }), { maxItems: MAX_CLASS_NAMES })),
  /** a text: its characters in the order of their numbers; a sample is inputShape[0] tokens */
  vocabulary: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_VOCABULARY_LENGTH })),
  /** a text without characters of its own: what a token is */
  tokens: Type.Optional(Type.Union([Type.Literal('bytes'), Type.Literal('bpe')])),
  /**
   * samples of tokens with a target each, in place of running text: `x` and `y` I32 (samples, …inputShape). Negative
   * targets count for nothing, as the model's `ignore_index` says
   */
  labelled: Type.Optional(Type.Literal(true)),
  /** multiplies stored values */
  inputScale: Type.Number({ minimum: 0, maximum: 1 }),
  /** scaled values become (value − mean) / deviation, channel by channel, or number by number of a flat sample */
  normalize: Type.Optional(strict({ mean: PerChannel, deviation: PerChannel })),
  augment: Type.Optional(AugmentSchema),
  train: Type.Array(ShardRefSchema, { minItems: 1, maxItems: 100_000 }),
  validation: Type.Array(ShardRefSchema, { maxItems: 100_000 }),
})
export type DatasetManifest = Static<typeof DatasetManifestSchema>

/** Whether samples are windows of tokens. */
export function isText({ vocabulary, tokens }: Pick<DatasetManifest, 'vocabulary' | 'tokens'>): boolean {
  return vocabulary !== undefined || tokens !== undefined
}

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

/** Values of one sample, as the model takes it. */
export function elementsOf({ inputShape }: Pick<DatasetManifest, 'inputShape'>): number {
  return sizeOf(inputShape)
}

/** Values of one sample in the shards. */
export function storedElementsOf({
  inputShape,
  storedShape = inputShape,
}: Pick<DatasetManifest, 'inputShape' | 'storedShape'>): number {
  return sizeOf(storedShape)
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1)
}

/**
 * Checks, before any fetch, that shards can hold what the manifest declares.
 * @throws GridError 'shard-corrupt'
 */
export function requirePossible(manifest: DatasetManifest, blockSamples: number): void {
  const blocks =
    new BlockRanges(manifest.train, blockSamples).length + new BlockRanges(manifest.validation, blockSamples).length
  if (blocks > 2 * MAX_BLOCKS) throw impossible(`at most ${MAX_BLOCKS} blocks of a split, got ${blocks} in all`)
  // windows overlap: their number is no matter of bytes
  if (isText(manifest) && manifest.labelled !== true) return
  if (manifest.labelled === true) return requirePossibleSamples(manifest)
  requirePossibleImages(manifest)
  requirePossibleSamples(manifest)
}

function requirePossibleSamples(manifest: DatasetManifest): void {
  const elements = storedElementsOf(manifest)
  for (const { samples, bytes } of [...manifest.train, ...manifest.validation])
    if (samples * elements > bytes)
      throw impossible(
        `at most ${bytes} bytes of samples in a shard of ${bytes}, got ${samples} samples of ${elements}`,
      )
}

/** Augmentation reads within the stored image, and no number is divided by a deviation of 0. */
/** @throws GridError 'shard-corrupt' */
export function requirePossibleImages(
  manifest: Pick<DatasetManifest, 'inputShape' | 'storedShape' | 'augment' | 'normalize'>,
): void {
  const { inputShape, storedShape = inputShape, augment } = manifest
  requireNormalizable(manifest)
  if (augment !== undefined && storedShape.length !== 3)
    throw impossible(`images of (channels, height, width) to augment, got samples of [${storedShape.join(', ')}]`)
  const crop = augment?.crop
  const cut = crop === undefined ? storedShape : [storedShape[0], ...crop]
  const fits = cut.every((size, i) => (size ?? 0) <= (storedShape[i] ?? 0))
  if (!fits || cut.join() !== inputShape.join())
    throw impossible(
      `images of [${storedShape.join(', ')}] cut to [${inputShape.join(', ')}], got a crop of ${crop?.join(' × ')}`,
    )
}

function requireNormalizable({
  inputShape: [parts = 0],
  normalize,
}: Pick<DatasetManifest, 'inputShape' | 'normalize'>): void {
  if (normalize === undefined) return
  const { mean, deviation } = normalize
  if (mean.length !== parts || deviation.length !== parts || !deviation.every((value) => value > 0))
    throw impossible(`a mean and a deviation above 0 for each of ${parts} channels, got others`)
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

import { type ModelSpec, randomWords, targetsPerSample } from '@starling-grid/model'
// Leased blocks → a batch: pixels scaled, samples of all blocks in the order of the blocks.
import {
  type BlockId,
  blockIndex,
  type BlockRange,
  type BlockRanges,
  blockRanges,
  elementsOf,
  epochOf,
  type JobTerms,
  GridError,
  rangeOf,
  trainingBlock,
} from '@starling-grid/protocol'
import type { Batch } from '../graph/executor.ts'
import type { DecodedShard, Shards } from './shards.ts'
import { copyWindows, windowsOf } from './windows.ts'

/** Shards that a trial batch is looked for in: one or two may be damaged. */
const TRIAL_SHARDS = 4

/** A batch that is being filled. */
interface Filling {
  readonly samples: number
  readonly x: Float32Array | Int32Array
  readonly y: Int32Array | Float32Array
}

export class Batches {
  readonly #terms: JobTerms
  readonly #shards: Shards
  readonly #train: BlockRanges
  readonly #validation: BlockRanges
  readonly #elements: number

  /** values of a target, one for each class; undefined: a target is the class itself, or a token */
  readonly #outputs: number | undefined
  readonly #onUnreadable: (blocks: readonly BlockId[], error: unknown) => void

  /** `onUnreadable`: these blocks of one shard could not be had; `spec`: of the job's model */
  constructor(
    terms: JobTerms,
    shards: Shards,
    spec: ModelSpec,
    onUnreadable: (blocks: readonly BlockId[], error: unknown) => void = () => undefined,
  ) {
    this.#outputs = spec.loss === 'cross_entropy' ? undefined : targetsPerSample(spec)
    this.#onUnreadable = onUnreadable
    this.#terms = terms
    this.#shards = shards
    this.#train = blockRanges(terms.dataset.train, terms.blockSamples)
    this.#validation = blockRanges(terms.dataset.validation, terms.blockSamples)
    this.#elements = elementsOf(terms.dataset)
  }

  /** samples of a whole block; the last of a shard may have fewer */
  get blockSamples(): number {
    return this.#terms.blockSamples
  }

  /** targets of a whole block: of a text one for each token, of classes one each, or one for each output */
  get blockTargets(): number {
    if (this.#outputs !== undefined) return this.#terms.blockSamples * this.#outputs
    return this.#terms.blockSamples * (this.#terms.dataset.vocabulary === undefined ? 1 : this.#elements)
  }

  /**
   * x (samples, …inputShape) scaled by the manifest's inputScale, y (samples,); of a text both (samples, context);
   * groups and keys say what belongs to which block.
   */
  async of(blocks: readonly BlockId[]): Promise<Batch> {
    const ranges = blocks.map((block) => rangeOf(block.startsWith('v:') ? this.#validation : this.#train, block))
    const samples = ranges.reduce((sum, range) => sum + range.samples, 0)
    const batch = this.#empty(samples)
    let at = 0
    for (const [i, range] of ranges.entries()) {
      this.#copy(
        await this.#shardOf(range, blocks, ranges),
        { range, block: blocks[i] ?? trainingBlock(0, 0) },
        { ...batch, at },
      )
      at += range.samples
    }
    return { ...batch, groups: ranges.map((range) => range.samples), keys: this.#keys(blocks, ranges) }
  }

  async #shardOf(
    { shard }: BlockRange,
    blocks: readonly BlockId[],
    ranges: readonly BlockRange[],
  ): Promise<DecodedShard> {
    try {
      return await this.#shards.get(shard)
    } catch (error) {
      this.#onUnreadable(
        blocks.filter((_, i) => ranges[i]?.shard === shard),
        error,
      )
      throw error
    }
  }

  /** without loading any of them */
  samplesOf(blocks: readonly BlockId[]): number {
    return blocks.reduce(
      (sum, block) => sum + rangeOf(block.startsWith('v:') ? this.#validation : this.#train, block).samples,
      0,
    )
  }

  /** `samples` training samples, to measure speed with: of the first shard that can be had and is whole. */
  async trial(samples: number): Promise<Batch> {
    const tried = new Set<string>()
    let failure: unknown = new Error('internal: a dataset without training blocks')
    for (const first of this.#train) {
      if (tried.has(first.shard.sha256) || tried.size >= TRIAL_SHARDS) continue
      tried.add(first.shard.sha256)
      try {
        return await this.#trialOf(first, samples)
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }

  async #trialOf(first: BlockRange, samples: number): Promise<Batch> {
    const range = { ...first, samples: Math.min(samples, first.shard.samples) }
    const batch = this.#empty(range.samples)
    this.#copy(await this.#shards.get(range.shard), { range, block: trainingBlock(0, 0) }, { ...batch, at: 0 })
    return batch
  }

  /**
   * What a model that draws random numbers draws from, one number per sample: made of the job's seed, the block with
   * its epoch, and the sample's index in the block. Every member that computes the block draws the same, at any time
   * and beside any other members.
   */
  #keys(blocks: readonly BlockId[], ranges: readonly BlockRange[]): Int32Array {
    return Int32Array.from(
      blocks.flatMap((block, b) => {
        const stream = block.startsWith('v:')
          ? blockIndex(block)
          : randomWords(this.#terms.seed, epochOf(block))(blockIndex(block))
        const word = randomWords(this.#terms.seed, stream)
        return Array.from({ length: ranges[b]?.samples ?? 0 }, (_, i) => word(i))
      }),
    )
  }

  /** Tokens and their targets are integers, one target for each token; other samples have a class, or values. */
  #empty(samples: number): Filling {
    const elements = samples * this.#elements
    if (this.#terms.dataset.vocabulary !== undefined)
      return { samples, x: new Int32Array(elements), y: new Int32Array(elements) }
    const x = new Float32Array(elements)
    if (this.#outputs !== undefined) return { samples, x, y: new Float32Array(samples * this.#outputs) }
    return { samples, x, y: new Int32Array(samples) }
  }

  #copy(
    shard: DecodedShard,
    { range, block }: { readonly range: BlockRange; readonly block: BlockId },
    { x, y, at }: Filling & { readonly at: number },
  ): void {
    if ('tokens' in shard) {
      if (!(x instanceof Int32Array && y instanceof Int32Array))
        throw new Error('internal: tokens in a batch of numbers')
      const text = { tokens: shard.tokens.length, context: this.#elements, seed: this.#terms.seed }
      return copyWindows(shard.tokens, windowsOf(block, range, text), { x, y, at, context: this.#elements })
    }
    const scale = this.#terms.dataset.inputScale
    const from = range.start * this.#elements
    const to = at * this.#elements
    for (let i = 0, n = range.samples * this.#elements; i < n; i++) x[to + i] = (shard.x[from + i] ?? 0) * scale
    const classes = shard.y.subarray(range.start, range.start + range.samples)
    if (this.#outputs === undefined) return y.set(classes, at)
    copyOneHot(classes, y.subarray(at * this.#outputs, (at + range.samples) * this.#outputs), this.#outputs)
  }
}

/** 1 for a sample's class, 0 for the others: what losses that compare values get of classes. */
function copyOneHot(classes: Int32Array, values: Float32Array | Int32Array, outputs: number): void {
  for (const [i, label] of classes.entries()) {
    if (label < 0 || label >= outputs)
      throw new GridError(
        'dataset-unreadable',
        `expected classes 0 to ${outputs - 1}, one for each output of the model, got ${label}; ` +
          'submit the job with a larger model',
      )
    values[i * outputs + label] = 1
  }
}

// Leased blocks → a batch: samples as the model takes them, those of all blocks in the order of the blocks.
import { type ModelSpec, randomWords, targetsPerSample } from '@starling-grid/model'
import {
  type BlockId,
  blockIndex,
  type BlockRange,
  type BlockRanges,
  blockRanges,
  elementsOf,
  epochOf,
  isText,
  type JobTerms,
  GridError,
  rangeOf,
  requirePossible,
  type ShardRef,
  trainingBlock,
} from '@starling-grid/protocol'
import type { Batch } from '../graph/executor.ts'
import { SamplePreparation } from './augment.ts'
import type { DecodedShard, SampleShard, Shards, StoredValues } from './shards.ts'
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
  #train: BlockRanges
  #trainShards: readonly ShardRef[]
  readonly #validation: BlockRanges
  readonly #elements: number

  readonly #preparation: SamplePreparation
  /** values of a target, one for each output; undefined: a target is the class itself, or a token */
  readonly #outputs: number | undefined
  readonly #onUnreadable: (blocks: readonly BlockId[], error: unknown) => void
  /** shards that batches wait for */
  #loading = 0

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
    this.#trainShards = terms.dataset.train
    this.#train = blockRanges(this.#trainShards, terms.blockSamples)
    this.#validation = blockRanges(terms.dataset.validation, terms.blockSamples)
    this.#elements = elementsOf(terms.dataset)
    this.#preparation = new SamplePreparation(terms.dataset)
  }

  /** Data that joined the dataset behind the `before` first shards; those that are known already count once. */
  append({ before, shards }: { readonly before: number; readonly shards: readonly ShardRef[] }): void {
    const known = this.#trainShards.length
    if (known >= before + shards.length) return
    if (known < before)
      throw new GridError('message-unexpected', `expected shards behind ${known}, got behind ${before}`)
    const train = [...this.#trainShards, ...shards.slice(known - before)]
    requirePossible({ ...this.#terms.dataset, train }, this.#terms.blockSamples)
    this.#trainShards = train
    this.#train = blockRanges(train, this.#terms.blockSamples)
  }

  /** samples of a whole block; the last of a shard may have fewer */
  get blockSamples(): number {
    return this.#terms.blockSamples
  }

  /** targets of a whole block: of a text one for each token, of classes one each, or one for each output */
  get blockTargets(): number {
    if (this.#outputs !== undefined) return this.#terms.blockSamples * this.#outputs
    return this.#terms.blockSamples * (isText(this.#terms.dataset) ? this.#elements : 1)
  }

  /**
   * x (samples, …inputShape) prepared as the manifest says (augment.ts), y (samples,) of classes or (samples, outputs)
   * of values. Of a text both are (samples, context). `groups` and `keys` say what belongs to which block.
   */
  async of(blocks: readonly BlockId[]): Promise<Batch> {
    const ranges = blocks.map((block) => rangeOf(block.startsWith('v:') ? this.#validation : this.#train, block))
    const samples = ranges.reduce((sum, range) => sum + range.samples, 0)
    const batch = this.#empty(samples)
    let at = 0
    for (const [i, range] of ranges.entries()) {
      const shard = await this.#shardOf(range, blocks, ranges)
      this.#copy(shard, { range, block: blocks[i] ?? trainingBlock(0, 0) }, { ...batch, at })
      at += range.samples
    }
    return { ...batch, groups: ranges.map((range) => range.samples), keys: this.#keys(blocks, ranges) }
  }

  /** Fetches what these blocks will need, while others are computed. Whoever computes them learns of a failure. */
  async ahead(blocks: readonly BlockId[]): Promise<void> {
    try {
      for (const block of blocks) await this.#shards.get(rangeOf(this.#train, block).shard)
    } catch {
      // `of` says it
    }
  }

  async #shardOf(
    { shard }: BlockRange,
    blocks: readonly BlockId[],
    ranges: readonly BlockRange[],
  ): Promise<DecodedShard> {
    this.#loading++
    try {
      return await this.#shards.get(shard)
    } catch (error) {
      this.#onUnreadable(
        blocks.filter((_, i) => ranges[i]?.shard === shard),
        error,
      )
      throw error
    } finally {
      this.#loading--
    }
  }

  /** A batch waits for samples. */
  get isLoading(): boolean {
    return this.#loading > 0
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
   * What a model that draws random numbers draws from, one number per sample. It is made of the job's seed, the block
   * with its epoch, and the sample's index in the block. Every member that computes the block draws the same, at any
   * time and beside any other members.
   */
  #keys(blocks: readonly BlockId[], ranges: readonly BlockRange[]): Int32Array {
    return Int32Array.from(blocks.flatMap((block, b) => this.#keysOf(block, ranges[b]?.samples ?? 0)))
  }

  #keysOf(block: BlockId, samples: number): number[] {
    const stream = block.startsWith('v:')
      ? blockIndex(block)
      : randomWords(this.#terms.seed, epochOf(block))(blockIndex(block))
    const word = randomWords(this.#terms.seed, stream)
    return Array.from({ length: samples }, (_, i) => word(i))
  }

  /** Tokens and their targets are integers, one target for each token; other samples have a class, or values. */
  #empty(samples: number): Filling {
    const elements = samples * this.#elements
    if (isText(this.#terms.dataset)) return { samples, x: new Int32Array(elements), y: new Int32Array(elements) }
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
    if (this.#terms.dataset.labelled === true) return this.#copyLabelled(shard, range, { x, y, at })
    if (!(x instanceof Float32Array)) throw new Error('internal: numbers in a batch of tokens')
    const keys = block.startsWith('v:') ? [] : this.#keysOf(block, range.samples)
    for (let i = 0; i < range.samples; i++)
      this.#preparation.copy({ stored: shard.x, from: range.start + i, x, at: at + i }, keys[i])
    this.#copyTargets(shard.y, range, y, at)
  }

  #copyLabelled(
    { x: tokens, y: targets }: SampleShard,
    { start, samples }: BlockRange,
    { x, y, at }: Pick<Filling, 'x' | 'y'> & { readonly at: number },
  ): void {
    const [from, to] = [start * this.#elements, (start + samples) * this.#elements]
    x.set(tokens.subarray(from, to), at * this.#elements)
    y.set(targets.subarray(from, to), at * this.#elements)
  }

  #copyTargets(stored: StoredValues, { start, samples }: BlockRange, y: Filling['y'], at: number): void {
    const { target, classes } = this.#terms.dataset
    const outputs = this.#outputs
    if (target !== undefined) {
      if (outputs !== classes) throw new Error(`internal: targets of ${classes} values for ${outputs} outputs`)
      return y.set(stored.subarray(start * classes, (start + samples) * classes), at * classes)
    }
    const labels = stored.subarray(start, start + samples)
    if (outputs === undefined) return y.set(labels, at)
    copyOneHot(labels, y.subarray(at * outputs, (at + samples) * outputs), outputs)
  }
}

/** 1 for a sample's class, 0 for the others: what losses that compare values get of classes. */
function copyOneHot(classes: StoredValues, values: Filling['y'], outputs: number): void {
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

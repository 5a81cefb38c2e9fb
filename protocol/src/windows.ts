// Where the samples of a text begin: pure functions of the seed, the epoch and the shard, so that every volunteer cuts
// the same windows. A sample is `context` tokens, and its targets are the tokens one further on.
import { random32 } from './order.ts'

/** One shard of a text, as its samples see it. */
export interface TextShard {
  /** tokens that it holds */
  readonly tokens: number
  /** tokens of one sample */
  readonly context: number
  /** windows that an epoch takes of it */
  readonly samples: number
}

/** Places that a window may begin at, so that its last target is still a token of the shard. */
export function windowPlaces({ tokens, context }: Pick<TextShard, 'tokens' | 'context'>): number {
  return Math.max(0, tokens - context)
}

export interface WindowRange {
  readonly start: number
  readonly samples: number
}

/**
 * First tokens of training samples `range`. An epoch's windows are spread evenly over the shard from an offset that is
 * drawn anew for each epoch, so that epochs see different windows. Samples that follow each other lie far apart, so
 * that the blocks of a batch are not one passage.
 */
export function trainingWindows(
  shard: TextShard,
  { start, samples }: WindowRange,
  { seed, epoch }: { readonly seed: number; readonly epoch: number },
): number[] {
  const places = windowPlaces(shard)
  const offset = drawOffset(seed, epoch, places)
  const stride = scatteringStride(shard.samples)
  return Array.from(
    { length: samples },
    (_, i) => (offset + evenly(shard, ((start + i) * stride) % shard.samples)) % places,
  )
}

/** First tokens of validation samples `range`: always the same. */
export function validationWindows(shard: TextShard, { start, samples }: WindowRange): number[] {
  return Array.from({ length: samples }, (_, i) => evenly(shard, start + i))
}

function evenly(shard: TextShard, place: number): number {
  return Math.floor((place * windowPlaces(shard)) / shard.samples)
}

function drawOffset(seed: number, epoch: number, places: number): number {
  const random = random32(Math.imul(seed | 0, 0x9e3779b1) ^ Math.imul(epoch + 1, 0xc2b2ae35))
  return random() % places
}

/** The golden section keeps multiples apart from each other (Knuth, TAOCP 6.4). */
const GOLDEN_SECTION = 0.618033988749895

/** Without a common divisor with `count`, so that its multiples visit every place once. */
function scatteringStride(count: number): number {
  let stride = Math.max(1, Math.floor(count * GOLDEN_SECTION))
  while (greatestCommonDivisor(stride, count) !== 1) stride--
  return stride
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b)
}

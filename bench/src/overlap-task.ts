// What the members of the overlap benchmark compute, and their messages to and from their parent.
import { gpt } from '@starling-grid/model'
import { random32 } from '@starling-grid/protocol'
import type { Batch } from '@starling-grid/volunteer/testing'

const VOCAB = 65
const CONTEXT = 64
/** A small GPT on characters, 7.3 MB of parameters: layers of equal size behind a small table, as in larger ones. */
export const MODEL = gpt({ blocks: 4, heads: 4, channels: 192, context: CONTEXT, vocab: VOCAB })
export const OPTIMIZER = { type: 'sgd', lr: 0.01, momentum: 0.9 } as const
/** Of each member in a step on an adapter: so many that computing takes longer than the exchange. */
export const SAMPLES = 4
/** Instead of an adapter's name: time passes and nothing is computed (timed-executor.ts). */
export const TIMED = 'timed'
/** ms that such a step takes: 2.7 times the exchange */
export const STEP_MS = 1000
/** Of a link in each direction: 160 Mbit/s, a good line to a home. */
export const LINK_BYTES_PER_MS = 20_000

/**
 * compute: a step of a lone member. exchange: the reduce of a gradient that is there. whole: both, one after the other.
 * overlap: both, buckets of the gradient enter the ring as backward finishes them.
 */
export type StepWay = 'compute' | 'exchange' | 'whole' | 'overlap'

/** prepare: be ready for the frames of generation `generation`; go: do the step. */
export type OverlapOrder =
  | { readonly type: 'prepare' | 'go'; readonly generation: number; readonly way: StepWay }
  | { readonly type: 'leave' }

export interface OverlapAnswer {
  readonly ms: number
  readonly adapter: string
  /** SHA-256 of the reduced gradient */
  readonly digest: string
}

/** Characters without sense; the arithmetic is the same. */
export function batchFor(member: number): Batch {
  const random = random32(member + 1)
  const tokens = (): Int32Array => Int32Array.from({ length: SAMPLES * CONTEXT }, () => random() % VOCAB)
  return { samples: SAMPLES, x: tokens(), y: tokens() }
}

// What the caller of an all-reduce says about encoding, and what follows from it: codecs, algorithms, bytes.
import { GridError } from '@starling-grid/protocol'
import { f16Codec, int8Codec, type Rounding, type Codec, type Movable } from '@starling-grid/protocol/floats'
import type { Algorithm } from '../collectives/moves.ts'
import { leftLength, type PowerSgdShape, type PowerSgdState, requireShape } from './encode-power-sgd.ts'
import { topKCount } from './encode-top-k.ts'
import { type Numbers, plainCodec, type ReduceOp } from './numbers.ts'

/**
 * What encoding lost, carried into the next step. `residual` is read, `next` is written. The caller swaps them together
 * with the version (rule R10), and an operation that failed has changed nothing that counts.
 */
export interface Feedback {
  readonly residual: Float32Array
  readonly next: Float32Array
}

export type ChunkEncoding =
  | { readonly type: 'f32' }
  | { readonly type: 'f16'; readonly feedback?: Feedback }
  | { readonly type: 'int8'; readonly feedback?: Feedback; readonly rounding?: Rounding }

export interface TopKEncoding {
  readonly type: 'top-k'
  /** of the numbers, 0.001 to 0.1 are usual */
  readonly fraction: number
  readonly feedback: Feedback
}

export interface PowerSgdEncoding {
  readonly type: 'power-sgd'
  readonly shape: PowerSgdShape
  readonly state: PowerSgdState
  /** written; the caller swaps it with `state` */
  readonly next: PowerSgdState
}

export type Encoding = ChunkEncoding | TopKEncoding | PowerSgdEncoding

/** @example let feedback = startFeedback(gradient.length) … feedback = swapped(feedback) */
export function startFeedback(length: number): Feedback {
  return { residual: new Float32Array(length), next: new Float32Array(length) }
}

export function swapped({ residual, next }: Feedback): Feedback {
  return { residual: next, next: residual }
}

/** What is added on the way and what is spread at the end. */
export interface Codecs {
  readonly partial: Codec
  readonly final: Codec
}

/**
 * Integers of 8 bits are not added and encoded again at each hop of a ring, where errors would pile up. There partial
 * sums travel as f16. Directly, each rank's part is encoded once, and the owner adds them in f32.
 */
export function codecsOf(encoding: ChunkEncoding, algorithm: Algorithm, values: Numbers): Codecs {
  switch (encoding.type) {
    case 'f32':
      return plain(values)
    case 'f16':
      return bothWays(f16Codec())
    case 'int8': {
      const final = int8Codec(encoding.rounding)
      return { partial: algorithm === 'direct' ? final : f16Codec(), final }
    }
    default:
      return encoding satisfies never
  }
}

/** Numbers as they are. */
export function plain(values: Movable): Codecs {
  return bothWays(plainCodec(values))
}

function bothWays(codec: Codec): Codecs {
  return { partial: codec, final: codec }
}

/**
 * Where each number is encoded once by one owner; elsewhere ranks would decode different bytes. Undefined: all
 * algorithms.
 */
export function algorithmsFor(encoding: ChunkEncoding): readonly Algorithm[] | undefined {
  return encoding.type === 'f32' ? undefined : ['ring', 'direct']
}

/** What one rank's whole vector weighs when encoded. */
export function encodedBytes(encoding: Encoding, length: number): number {
  switch (encoding.type) {
    case 'f32':
      return 4 * length
    case 'f16':
      return f16Codec().bytes(length)
    case 'int8':
      return int8Codec().bytes(length)
    case 'top-k':
      return 8 * topKCount(length, encoding.fraction)
    case 'power-sgd':
      return 4 * (encoding.state.q.length + leftLength(encoding.shape))
    default:
      return encoding satisfies never
  }
}

/** @throws GridError 'unsupported' or 'usage' */
export function requireEncodable(encoding: Encoding, op: ReduceOp, values: Numbers): void {
  if (encoding.type === 'f32') return
  if (!(values instanceof Float32Array))
    throw new GridError('unsupported', `expected floats for ${encoding.type}, got integers; use no encoding`)
  if (op !== 'sum' && op !== 'mean')
    throw new GridError('unsupported', `expected a sum or a mean for ${encoding.type}, got ${op}; use no encoding`)
  if (encoding.type === 'top-k' && !(encoding.fraction > 0 && encoding.fraction <= 1))
    throw new GridError('usage', `expected a fraction above 0 and at most 1, got ${encoding.fraction}`)
  if (encoding.type === 'power-sgd') requireShape(encoding.shape, values.length)
  for (const residual of residualsOf(encoding))
    if (residual.length !== values.length)
      throw new GridError(
        'usage',
        `expected a residual of ${values.length} numbers, as the vector has, got ${residual.length}`,
      )
}

function residualsOf(encoding: Encoding): readonly Float32Array[] {
  if (encoding.type === 'f32') return []
  if (encoding.type === 'power-sgd') return [encoding.state.residual, encoding.next.residual]
  return encoding.feedback === undefined ? [] : [encoding.feedback.residual, encoding.feedback.next]
}

/** values + residual, into `into`. */
export function withResidual(values: Float32Array, residual: Float32Array, into: Float32Array): void {
  for (let i = 0; i < into.length; i++) into[i] = (values[i] ?? 0) + (residual[i] ?? 0)
}

// What a volunteer and the thread of one of its GPUs say to each other. Parameters and gradients are memory that both
// have; everything else is copied.
import { type ErrorCode, GridError, isGridError, type Sha256 } from '@starling-grid/protocol'
import type { AdapterDescription, Batch, ExecutorBounds } from '@starling-grid/volunteer'
import type { EarlyRanges } from '@starling-grid/volunteer/mirrored'
import type { WantedExecutor } from './gpu-executor.ts'
import type { ListedAdapter } from './gpu-wish.ts'

/** First message to a thread. */
export interface OpenOrder extends Omit<WantedExecutor, 'bounds'> {
  readonly type: 'open'
  readonly adapter: ListedAdapter
  readonly bounds: Pick<ExecutorBounds, 'maxBytes' | 'precision'> | undefined
  /** it asks for the frozen parameters one at a time */
  readonly hasFrozen: boolean
  /** it asks what others measured, and tells what it measured */
  readonly sharesVariants: boolean
}

/** volunteer → thread */
export type ToGpuThread =
  | OpenOrder
  /** the adapter may be opened now */
  | { readonly type: 'turn' }
  | { readonly type: 'frozen'; readonly name: string; readonly values: Float32Array | ThreadError }
  | { readonly type: 'variants'; readonly call: number; readonly answer: Uint8Array | ThreadError }
  | { readonly type: 'load'; readonly parameters: Float32Array }
  | {
      readonly type: 'gradient'
      readonly call: number
      readonly batch: Batch
      readonly into: Float32Array
      readonly ranges: EarlyRanges['ranges'] | undefined
    }
  | { readonly type: 'evaluate'; readonly call: number; readonly batch: Batch }
  | { readonly type: 'predict'; readonly call: number; readonly x: Batch['x']; readonly samples: number }
  | { readonly type: 'close' }

/** thread → volunteer */
export type FromGpuThread =
  | { readonly type: 'wants-turn' }
  | { readonly type: 'turn-over' }
  | { readonly type: 'wants-frozen'; readonly name: string }
  | {
      readonly type: 'shares-variants'
      readonly call: number
      readonly adapterClass: Sha256
      readonly report: Uint8Array | undefined
    }
  | { readonly type: 'opened'; readonly adapter: AdapterDescription }
  | { readonly type: 'refused'; readonly error: ThreadError }
  | { readonly type: 'lost' }
  | { readonly type: 'say'; readonly text: string }
  | { readonly type: 'final'; readonly call: number; readonly index: number }
  | { readonly type: 'answer'; readonly call: number; readonly result: unknown }
  | { readonly type: 'failed'; readonly call: number; readonly error: ThreadError }

/** An error that went through a message. */
export interface ThreadError {
  /** absent: a defect of ours */
  readonly code?: ErrorCode
  readonly message: string
}

export function threadErrorOf(error: unknown): ThreadError {
  if (isGridError(error)) return { code: error.code, message: error.message }
  return { message: error instanceof Error ? (error.stack ?? error.message) : String(error) }
}

export function errorFrom({ code, message }: ThreadError): Error {
  return code === undefined ? new Error(message) : new GridError(code, message)
}

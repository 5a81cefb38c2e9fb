// What an executor is made of: something that holds a graph's tensors and runs its calls. Implemented in cpu/ and gpu/.
// Golden cases of single operators drive it directly, on the same path as training.

import type { Precision } from '@starling-grid/protocol'
import type { OptimizerSpec, PackedStorage } from '@starling-grid/shaders'
import type { Graph, GraphPart } from './build.ts'
import type { EarlyRanges } from './executor.ts'
import type { Tensor } from './tensor.ts'

export type Values = Float32Array | Int32Array

export interface RunRequest {
  readonly samples: number
  /** inputs, targets and upstream gradients to set first; the values may change again once the run has resolved */
  readonly write: readonly (readonly [Tensor, Values])[]
  /** run in this order */
  readonly parts: readonly GraphPart[]
  /** tensors to bring back afterwards, each as its elements for `samples` samples */
  readonly read?: readonly Tensor[]
  /** the first element of each is enough: for measurements, which wait for the end of a run and need no values */
  readonly glance?: boolean
  /** true: forget the gradient of earlier runs first; otherwise this run adds to it */
  readonly clearGradient?: boolean
  /** what the gradient at the loss is multiplied by, and everything after it; a power of two, 1 when absent */
  readonly lossScale?: number
  /** receives the flat gradient after the run */
  readonly gradientInto?: Float32Array
  /** pieces of that gradient that are wanted before the rest of the run is over */
  readonly early?: EarlyRanges
}

/** Parameters and an optimizer's state where runs are made, beside the parameters that are loaded for them. */
export interface ResidentVectors {
  /** (parameterCount,) in layout order; `flat` may be reused once it has resolved */
  set(flat: Float32Array): Promise<void>
  /** The runs that follow take these parameters, until others are loaded. */
  use(): Promise<void>
  /** Σ squares of the trained elements of the gradient that the last runs left; undefined: one is not finite */
  squares(): Promise<number | undefined>
  /** A step of the optimizer with that gradient; `scalars`: stepScalars of @starling-grid/shaders */
  step(scalars: Float32Array<ArrayBuffer>): Promise<void>
  /** (parameterCount,) in layout order */
  read(into: Float32Array): Promise<void>
}

export interface GraphRunner {
  readonly graph: Graph
  /** the most samples that one run takes */
  readonly capacity: number
  /** how values between kernels are stored; runners with f16 take a loss scale */
  readonly precision: Precision
  /** how it holds frozen matrices; absent: as f32 */
  readonly packed?: PackedStorage | undefined
  /** (parameterCount,) in layout order, for the runs that follow; `flat` may be reused at once */
  loadParameters(flat: Float32Array): void
  /**
   * One of the graph's fixed tensors, for all runs that follow: a matrix that it holds packed as its words, all others
   * as f32. Constants are there from the beginning.
   */
  loadFixed(index: number, values: Values): void
  /**
   * Runs take effect in the order of the calls; several may be under way. Resolves with what `read` asked for.
   * @throws GridError('device-lost')
   */
  run(request: RunRequest): Promise<Float32Array[]>
  /**
   * One at a time: the one before is given up. Absent, or undefined: state stays with the caller; a lack of memory was
   * said.
   */
  resident?(optimizer: OptimizerSpec): Promise<ResidentVectors | undefined>
  destroy(): void
}

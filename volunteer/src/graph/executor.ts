// The seam between training and arithmetic: something that can run a model forward and backward.
// Implemented on WebGPU (gpu/) and in plain TypeScript (cpu/); both run volunteer/testing/executor-suite.ts.
import type { AdapterDescription, Precision, Tally } from '@starling-grid/protocol'
import type { OptimizerSpec, OptimizerState } from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import type { FrozenSource } from './frozen-source.ts'
import type { SharedVariants } from './shared-variants.ts'

export type { AdapterDescription }

/**
 * `samples` inputs with their targets, dense, batch-major. Pixels are already scaled; token ids and classes are Int32.
 */
export interface Batch {
  readonly samples: number
  /** (samples, …input shape) */
  readonly x: Float32Array | Int32Array
  /**
   * cross_entropy: class indices (samples, …output shape without classes); other losses: values (samples, …output
   * shape)
   */
  readonly y: Int32Array | Float32Array
  /** samples of each block in order; models that normalise over a batch do so within each. Absent: one block */
  readonly groups?: readonly number[]
  /**
   * (samples,) any integers; what dropout draws from, so that a sample's mask does not depend on who computes it.
   * Absent: 0, 1, …
   */
  readonly keys?: Int32Array
}

/** Sums over the batch, never means: the division by Σtargets happens once, after the reduce. */
export interface BatchSums {
  /** Σ loss over all targets */
  readonly lossSum: number
  /**
   * how many targets the loss summed over: what cross_entropy does not ignore; samples × outputs of the other losses
   */
  readonly targets: number
  /** cross_entropy: targets that are the arg-max; bce_with_logits: outputs on the right side of ½; mse: 0 */
  readonly correct: number
  /** of `evaluate`: what metrics follow from, where the model has any */
  readonly tally?: Tally
}

/** Pieces of a gradient that the caller gets as soon as each is final. */
export interface EarlyRanges {
  /** of whole parameters, together all of them, in the order in which backward is expected to finish them */
  readonly ranges: readonly FloatRange[]
  /** Runs that would rather be bytes. An executor that cannot or need not encode ignores it. */
  readonly encode?: EncodeRequest
  /**
   * `into` holds range `index` as it stays. In order, once each. A range that is never told of is final with the
   * result. `encoded`: the bytes of its runs, in order; `into` then has zeros in their place.
   */
  onFinal(index: number, encoded?: readonly Uint8Array[]): void
}

/** Encodings that have kernels (shaders/kernels/encode.wgsl). */
export type AdapterEncoding = 'f16' | 'int8'

/** Runs of a gradient that are encoded where it was computed, before they are read back (docs/decisions/0009). */
export interface EncodeRequest {
  readonly encoding: AdapterEncoding
  /** of each early range, in order; the same array as long as the cut stays the same */
  readonly runs: readonly (readonly FloatRange[])[]
  /**
   * What encoding lost stays with the executor and joins the next gradient. Which loss that is. The same number: the
   * one that the last order began with, whose step was not committed. One more: the one that it left. Any other: none.
   */
  readonly residualEpoch: number
  /** what the same takes on this machine's CPU: an executor that is slower leaves it there */
  readonly cpuMsPerMillion: number
}

/** How an executor computes, and what it may do to this machine. */
export interface ExecutorBounds {
  /** as the job asks; absent: f32 */
  readonly precision?: Precision
  /** the job requires an adapter with shader-f16 */
  readonly needsF16?: boolean
  /** of models with frozen parameters: where these come from */
  readonly frozen?: FrozenSource | undefined
  /** what volunteers with the same class of adapter measured; absent: this one measures for itself alone */
  readonly variants?: SharedVariants | undefined
  /** of the device's memory, or of this process where no device computes */
  readonly maxBytes: number
  /** the device was lost, and is opened again */
  onDeviceLost(): void
}

/** One inner step of training that stays where it is computed. */
export interface ResidentStep {
  readonly optimizer: OptimizerSpec
  /** goes on with each step that is made; its slots are not looked at */
  readonly state: OptimizerState
  /** bound of the norm of the mean gradient, if there is one */
  readonly clipNorm: number | undefined
  /** Asked when the gradient is there and finite: false leaves the parameters as they are. */
  wanted(sums: BatchSums): boolean
}

/** Of a step; `finite`: loss and gradient are, or else no step was made. */
export interface ResidentSums extends BatchSums {
  readonly finite: boolean
}

/**
 * Parameters, gradients and the optimizer's state stay where they are computed, from step to step. Equal to steps over
 * the host up to rounding. Other tasks of the executor may come between.
 */
export interface ResidentTraining {
  /** Sets the parameters; the optimizer's vectors stay as steps left them, zeros at first. */
  set(parameters: Float32Array): Promise<void>
  /** @throws ResidentStateLost when the device was lost: `set` begins anew, without the optimizer's vectors */
  step(batch: Batch, step: ResidentStep): Promise<ResidentSums>
  /** Brings the parameters (parameterCount,). @throws ResidentStateLost */
  read(into: Float32Array): Promise<void>
}

export interface Executor {
  readonly adapter: AdapterDescription
  /** blocks that it computes side by side, and of which it cuts none; absent: 1 */
  readonly blocksAtOnce?: number
  /** Replaces all parameters. flat (parameterCount,) in the order of the model's parameter layout. */
  loadParameters(flat: Float32Array): void
  /**
   * Forward and backward over `batch` with the loaded parameters, split into micro-batches as memory asks.
   * Writes Σ over targets of ∂loss/∂parameter into `into` (parameterCount,), overwriting it.
   * @throws GridError('device-lost') when the device is gone
   */
  gradient(batch: Batch, into: Float32Array, early?: EarlyRanges): Promise<BatchSums>
  /** Forward only, evaluation mode. */
  evaluate(batch: Batch): Promise<BatchSums>
  /** Forward only, evaluation mode: (samples, …output shape). */
  predict(x: Batch['x'], samples: number): Promise<Float32Array>
  /** One at a time: the one before is given up. Absent, or undefined: inner steps go over the host. */
  resident?(optimizer: OptimizerSpec): Promise<ResidentTraining | undefined>
  /** Releases every buffer. The executor cannot be used afterwards. */
  destroy(): void
}

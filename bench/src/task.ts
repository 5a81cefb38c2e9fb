// What libraries are asked to do, and the numbers that they do it with. These are a pure function of the task, so that
// every library works on the same ones, in a page or in any process. Independent of libraries.
import {
  gpt,
  initialParameters,
  lenet5,
  mlp,
  outputShape,
  parameterLayout,
  takesTokens,
  targetsPerSample,
  type ModelSpec,
} from '@starling-grid/model'
import { random32 } from '@starling-grid/protocol'

export interface MatmulTask {
  readonly kind: 'matmul'
  /** A (size, size) · B (size, size) */
  readonly size: number
}

/** A convolution with padding that keeps the size and without a bias. */
export interface ConvTask {
  /** backward: the gradients of the input and of the weight, given that of the result */
  readonly kind: 'conv2d-forward' | 'conv2d-backward'
  readonly samples: number
  readonly channels: number
  readonly out: number
  /** pixels of the square image */
  readonly side: number
  readonly kernel: number
}

/** Forward, backward and an update by plain SGD, on the same batch again and again. */
export interface StepTask {
  readonly kind: 'step'
  readonly model: StepModel
  readonly samples: number
}

/** A chain of elementwise kernels, each of which needs the result of the one before. */
export interface ChainTask {
  readonly kind: 'chain'
  readonly length: number
  readonly elements: number
}

export type BenchTask = MatmulTask | ConvTask | StepTask | ChainTask
export type StepModel = 'lenet5' | 'mlp' | 'gpt' | 'gpt2'

export const STEP_MODELS: Readonly<Record<StepModel, () => ModelSpec>> = {
  lenet5: () => lenet5(),
  mlp: () => mlp({ input: [1, 28, 28], hidden: [512, 512], classes: 10 }),
  gpt: () => gpt({ blocks: 2, heads: 4, channels: 128, context: 64, vocab: 65 }),
  gpt2: () => gpt({ blocks: 12, heads: 12, channels: 768, context: 1024, vocab: 50_257 }),
}

/** large enough that a wrong gradient shows in the losses after few updates */
export const STEP_RATE = 0.05
/** losses that are compared: after as many updates */
export const STEPS_COMPARED = 3
const SEED = 1

/** Multiplications and additions of one run; 0 where their rate has no meaning. */
export function flopsOf(task: BenchTask): number {
  if (task.kind === 'matmul') return 2 * task.size ** 3
  if (task.kind === 'step' || task.kind === 'chain') return 0
  const once = 2 * task.samples * task.side ** 2 * task.out * task.channels * task.kernel ** 2
  return task.kind === 'conv2d-backward' ? 2 * once : once
}

export interface MatmulInputs {
  /** (size, size), row by row */
  readonly a: Float32Array<ArrayBuffer>
  readonly b: Float32Array<ArrayBuffer>
}

export function matmulInputs({ size }: MatmulTask): MatmulInputs {
  return { a: noise(size * size, 1), b: noise(size * size, 2) }
}

export interface ConvInputs {
  /** (samples, channels, side, side) */
  readonly x: Float32Array<ArrayBuffer>
  /** (out, channels, kernel, kernel) */
  readonly weight: Float32Array<ArrayBuffer>
  /** (samples, out, side, side) */
  readonly dy: Float32Array<ArrayBuffer>
}

export function convInputs({ samples, channels, out, side, kernel }: ConvTask): ConvInputs {
  const pixels = side * side
  return {
    x: noise(samples * channels * pixels, 3),
    weight: noise(out * channels * kernel ** 2, 4),
    dy: noise(samples * out * pixels, 5),
  }
}

export interface StepInputs {
  readonly spec: ModelSpec
  /** in the model's layout, as PyTorch shapes them */
  readonly parameters: Float32Array<ArrayBuffer>
  /** (samples, …input shape); ids of tokens are Int32 */
  readonly x: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>
  /** (samples × targets of one,) classes */
  readonly y: Int32Array<ArrayBuffer>
  readonly classes: number
}

/** Models of which drawing the parameters as training does takes longer than all that is measured. */
const LARGE_MODEL = 1e7

function startOf(spec: ModelSpec): Float32Array<ArrayBuffer> {
  const { total } = parameterLayout(spec)
  return total < LARGE_MODEL ? initialParameters(spec, SEED) : noise(total, SEED, 1 / 30)
}

export function stepInputs({ model, samples }: StepTask): StepInputs {
  const spec = STEP_MODELS[model]()
  const random = random32(6)
  const whole = (length: number, below: number) => Int32Array.from({ length }, () => random() % below)
  const classes = outputShape(spec).at(-1) ?? 1
  const elements = spec.input.reduce((product, size) => product * size, samples)
  const x = takesTokens(spec) ? whole(elements, classes) : noise(elements, 7).map(Math.abs)
  return {
    spec,
    parameters: startOf(spec),
    x,
    y: whole(samples * targetsPerSample(spec), classes),
    classes,
  }
}

export function chainInput({ elements }: ChainTask): Float32Array<ArrayBuffer> {
  return noise(elements, 8)
}

/** Even between −`most` and `most`. */
function noise(length: number, seed: number, most = 1): Float32Array<ArrayBuffer> {
  const random = random32(seed)
  const values = new Float32Array(length)
  for (let i = 0; i < length; i++) values[i] = most * (random() / 2 ** 31 - 1)
  return values
}

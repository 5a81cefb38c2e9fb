import { type GptLayer, parameterLayout, type ModelSpec, type ParameterEntry } from '@starling-grid/model'
import { concatenated } from '@starling-grid/protocol/floats'
import '@tensorflow/tfjs-core/dist/register_all_gradients'
import '@tensorflow/tfjs-backend-cpu'
import '@tensorflow/tfjs-backend-webgpu'
import { setThreadsCount, setWasmPaths } from '@tensorflow/tfjs-backend-wasm'
// TensorFlow.js as a library under measurement, written as its users write it. Runs in Node and in pages.
import * as tf from '@tensorflow/tfjs-core'
import type { Library, Missing, Prepared } from '../src/library.ts'
import {
  chainInput,
  convInputs,
  matmulInputs,
  STEP_RATE,
  stepInputs,
  STEPS_COMPARED,
  type ChainTask,
  type ConvTask,
  type MatmulTask,
  type StepInputs,
  type StepTask,
  type Task,
} from '../src/task.ts'
import { gptForward, isTable } from './tfjs-gpt.ts'

const THREADS = 2

export async function openLibraries(where: 'node' | 'browser'): Promise<{ libraries: Library[]; missing: Missing[] }> {
  const libraries: Library[] = []
  const missing: Missing[] = []
  for (const backend of ['webgpu', 'wasm', 'cpu']) {
    const name = `tfjs-${backend}`
    if (backend === 'wasm' && where === 'node')
      missing.push({ name, reason: 'its WebAssembly loader wants a page: run --in browser' })
    else if (await opens(backend))
      libraries.push({ name, version: tf.version_core, adapter: backend, prepare: (task) => prepare(task, backend) })
    else missing.push({ name, reason: 'the backend does not start here' })
  }
  return { libraries, missing }
}

async function opens(backend: string): Promise<boolean> {
  if (backend === 'wasm') {
    setWasmPaths('/')
    setThreadsCount(THREADS)
  }
  return tf.setBackend(backend).catch(() => false)
}

async function prepare(task: Task, backend: string): Promise<Prepared> {
  await tf.setBackend(backend)
  const { run, steps, close } = tensorsOf(task)
  const inBackend = async <T>(work: () => Promise<T>): Promise<T> => {
    await tf.setBackend(backend)
    return work()
  }
  return {
    close: () => inBackend(async () => close()),
    result: () =>
      inBackend(async () => {
        if (steps) return steps()
        const outputs = run(true)
        const parts = await Promise.all(outputs.map((output) => output.data()))
        tf.dispose(outputs)
        return concatenated(parts.map((part) => Float32Array.from(part)))
      }),
    time: (repeats) =>
      inBackend(async () => {
        const start = performance.now()
        for (let i = 0; i < repeats - 1; i++) tf.dispose(run(false))
        const outputs = run(false)
        await Promise.all(outputs.map((output) => output.data()))
        tf.dispose(outputs)
        return performance.now() - start
      }),
  }
}

interface TfWork {
  /** One run. `shaped`: its outputs as PyTorch shapes them, not as the library has them. */
  run(shaped: boolean): tf.Tensor[]
  /** losses of the first steps, for tasks that have them */
  steps?(): Promise<Float32Array>
  close(): void
}

function tensorsOf(task: Task): TfWork {
  switch (task.kind) {
    case 'matmul':
      return matmul(task)
    case 'conv2d-forward':
    case 'conv2d-backward':
      return conv2d(task)
    case 'step':
      return trainingStep(task)
    case 'chain':
      return chain(task)
    default:
      throw task satisfies never
  }
}

function matmul(task: MatmulTask): TfWork {
  const { a, b } = matmulInputs(task)
  const [left, right] = [a, b].map((values) => tf.tensor2d(values, [task.size, task.size]))
  if (!left || !right) throw new Error('no tensors')
  return { run: () => [tf.matMul(left, right)], close: () => tf.dispose([left, right]) }
}

/** Channels last, its own layout; the two gradients by the kernels that its autograd calls. */
function conv2d(task: ConvTask): TfWork {
  const { samples, channels, out, side, kernel } = task
  const inputs = convInputs(task)
  const x = tf.tidy(() =>
    tf.transpose(tf.tensor4d(inputs.x, [samples, channels, side, side]), [0, 2, 3, 1]),
  ) as tf.Tensor4D
  const dy = tf.tidy(() =>
    tf.transpose(tf.tensor4d(inputs.dy, [samples, out, side, side]), [0, 2, 3, 1]),
  ) as tf.Tensor4D
  const filter = tf.tidy(() =>
    tf.transpose(tf.tensor4d(inputs.weight, [out, channels, kernel, kernel]), [2, 3, 1, 0]),
  ) as tf.Tensor4D
  const attributes = { strides: 1, pad: 'same', dataFormat: 'NHWC', dilations: 1 }
  const forward = () => tf.conv2d(x, filter, 1, 'same')
  const backward = () => [
    tf.engine().runKernel('Conv2DBackpropInput', { dy, filter }, { ...attributes, inputShape: x.shape }) as tf.Tensor,
    tf.engine().runKernel('Conv2DBackpropFilter', { x, dy }, { ...attributes, filterShape: filter.shape }) as tf.Tensor,
  ]
  const shape = (tensor: tf.Tensor, i: number) => tf.transpose(tensor, i === 1 ? [3, 2, 0, 1] : [0, 3, 1, 2])
  return {
    run: (shaped) =>
      tf.tidy(() => {
        const outputs = task.kind === 'conv2d-forward' ? [forward()] : backward()
        return shaped ? outputs.map(shape) : outputs
      }),
    close: () => tf.dispose([x, dy, filter]),
  }
}

function chain(task: ChainTask): TfWork {
  const x = tf.tensor1d(chainInput(task))
  return {
    run: () =>
      tf.tidy(() => {
        let y: tf.Tensor = x
        for (let i = 0; i < task.length; i++) y = tf.tanh(y)
        return [y]
      }),
    close: () => tf.dispose(x),
  }
}

function trainingStep(task: StepTask): TfWork {
  const inputs = stepInputs(task)
  const x = tf.tidy(() => inputTensor(inputs, task.samples))
  const labels = tf.tidy(() => tf.oneHot(tf.tensor1d(inputs.y, 'int32'), inputs.classes))
  const model = modelOf(inputs.spec)
  const optimizer = tf.train.sgd(STEP_RATE)
  const loss = () => tf.losses.softmaxCrossEntropy(labels, model.forward(x)) as tf.Scalar
  const step = () => {
    const cost = optimizer.minimize(loss, true, model.variables)
    if (!cost) throw new Error('no loss')
    return cost
  }
  return {
    run: () => [step()],
    async steps() {
      model.load(inputs.parameters)
      const losses: number[] = []
      for (let i = 0; i <= STEPS_COMPARED; i++) losses.push((await step().data())[0] ?? NaN)
      return Float32Array.from(losses.slice(1), (value) => value - (losses[0] ?? NaN))
    },
    close: () => tf.dispose([x, labels, ...model.variables]),
  }
}

function inputTensor({ x, spec }: StepInputs, samples: number): tf.Tensor {
  if (x instanceof Int32Array) return tf.tensor2d(x, [samples, x.length / samples], 'int32')
  const [channels = 1, height = 1, width = 1] = spec.input
  return tf.transpose(tf.tensor4d(x, [samples, channels, height, width]), [0, 2, 3, 1])
}

interface Model {
  readonly variables: tf.Variable[]
  /** from PyTorch's layout */
  load(flat: Float32Array): void
  forward(x: tf.Tensor): tf.Tensor
}

function modelOf(spec: ModelSpec): Model {
  const { entries } = parameterLayout(spec)
  const lastImage = imageBeforeFlatten(spec)
  const toOurs = ({ name, shape }: ParameterEntry, values: Float32Array, first: boolean): tf.Tensor => {
    const tensor = tf.tensor(values, [...shape])
    if (shape.length === 4) return tf.transpose(tensor, [2, 3, 1, 0])
    if (shape.length === 1 || isTable(name)) return tensor
    // What is flattened here is channels last, so the rows of the first dense layer are ordered so too.
    return first && lastImage
      ? tf.reshape(tf.transpose(tf.reshape(tensor, [shape[0] ?? 1, ...lastImage]), [2, 3, 1, 0]), [
          shape[1] ?? 1,
          shape[0] ?? 1,
        ])
      : tf.transpose(tensor)
  }
  const firstDense = entries.find(({ name, shape }) => shape.length === 2 && !isTable(name))
  const variables = new Map(
    entries.map((entry) => [
      entry.name,
      tf.variable(
        tf.tidy(() => toOurs(entry, new Float32Array(entry.length), false)),
        true,
      ),
    ]),
  )
  const variable = (name: string) => variables.get(name) ?? fail(`no variable ${name}`)
  return {
    variables: [...variables.values()],
    load: (flat) =>
      tf.tidy(() => {
        for (const entry of entries)
          variable(entry.name).assign(
            toOurs(entry, flat.slice(entry.offset, entry.offset + entry.length), entry === firstDense),
          )
      }),
    forward: (x) =>
      spec.layers.reduce(
        (input, layer) =>
          layer.type === 'gpt'
            ? gptForward(layer as GptLayer, input as tf.Tensor2D, variable)
            : layerOf(layer as TfLayer, input, variable),
        x,
      ),
  }
}

/** The few words of a layer that these models use. */
interface TfLayer {
  readonly type: string
  readonly name?: string
  readonly kernel?: number
  readonly padding?: number
}

function layerOf(
  { type, name = '', kernel = 2, padding = 0 }: TfLayer,
  x: tf.Tensor,
  variable: (name: string) => tf.Variable,
): tf.Tensor {
  switch (type) {
    case 'conv2d':
      return tf.add(
        tf.conv2d(x as tf.Tensor4D, variable(`${name}.weight`) as tf.Tensor4D, 1, padding),
        variable(`${name}.bias`),
      )
    case 'linear':
      return tf.add(tf.matMul(x, variable(`${name}.weight`)), variable(`${name}.bias`))
    case 'relu':
      return tf.relu(x)
    case 'avgpool2d':
      return tf.avgPool(x as tf.Tensor4D, kernel, kernel, 'valid')
    case 'flatten':
      return tf.reshape(x, [x.shape[0] ?? 1, -1])
    default:
      return fail(`no layer ${type} is written for tfjs`)
  }
}

/** (channels, height, width) of what the flatten layer flattens. */
function imageBeforeFlatten(spec: ModelSpec): readonly number[] | undefined {
  let [channels = 1, height = 1, width = 1] = spec.input
  for (const { type, out = channels, kernel = 2, padding = 0 } of spec.layers as unknown as (TfLayer & {
    out?: number
  })[]) {
    if (type === 'flatten') return [channels, height, width]
    if (type === 'conv2d')
      [channels, height, width] = [out, height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1]
    if (type === 'avgpool2d') [height, width] = [Math.floor(height / kernel), Math.floor(width / kernel)]
  }
  return undefined
}

function fail(message: string): never {
  throw new Error(message)
}

// jax-js as a library under measurement, with grad and jit as its users write it. Runs in Node and in pages.
// An array is used up by the function that it is passed to; `.ref` keeps it for another use.
import { defaultDevice, type Device, init, jit, lax, nn, numpy as np, valueAndGrad, vjp } from '@jax-js/jax'
import { parameterLayout, type ModelSpec } from '@starling-grid/model'
import { concatenated } from '@starling-grid/protocol/floats'
import type { Library, Missing, Prepared } from '../src/library.ts'
import {
  convInputs,
  matmulInputs,
  STEP_RATE,
  stepInputs,
  STEPS_COMPARED,
  type ConvTask,
  type MatmulTask,
  type StepTask,
  type Task,
} from '../src/task.ts'

const VERSION = '0.1.25'

export async function openLibraries(): Promise<{ libraries: Library[]; missing: Missing[] }> {
  const started = await init()
  const wanted = ['webgpu', 'wasm'] as const
  const missing = wanted
    .filter((device) => !started.includes(device))
    .map((device) => ({ name: `jax-js-${device}`, reason: 'the device does not start here' }))
  const libraries = wanted
    .filter((device) => started.includes(device))
    .map((device) => ({
      name: `jax-js-${device}`,
      version: VERSION,
      adapter: device,
      prepare: (task: Task) => prepare(task, device),
    }))
  return { libraries, missing }
}

async function prepare(task: Task, device: Device): Promise<Prepared> {
  defaultDevice(device)
  const { run, steps, close } = arraysOf(task)
  const read = async (outputs: np.Array[]): Promise<Float32Array> => {
    const parts: Float32Array[] = []
    for (const output of outputs) parts.push((await output.data()) as Float32Array)
    return concatenated(parts)
  }
  return {
    close: async () => close(),
    async result() {
      defaultDevice(device)
      return steps ? steps() : read(run())
    },
    async time(repeats) {
      defaultDevice(device)
      const start = performance.now()
      // Lazy: what is thrown away before it is asked for is never computed.
      for (let i = 0; i < repeats - 1; i++) for (const output of run()) (await output.blockUntilReady()).dispose()
      for (const output of run()) await output.data()
      return performance.now() - start
    },
  }
}

interface JaxWork {
  run(): np.Array[]
  steps?(): Promise<Float32Array>
  close(): void
}

function arraysOf(task: Task): JaxWork {
  switch (task.kind) {
    case 'matmul':
      return matmul(task)
    case 'conv2d-forward':
    case 'conv2d-backward':
      return conv2d(task)
    case 'step':
      return trainingStep(task)
    case 'chain':
      throw new Error('jit makes one kernel of the whole chain, so there is no dependent dispatch to time')
    default:
      throw task satisfies never
  }
}

function matmul(task: MatmulTask): JaxWork {
  const { a, b } = matmulInputs(task)
  const [left, right] = [shaped(a, [task.size, task.size]), shaped(b, [task.size, task.size])]
  const product = jit((l: np.Array, r: np.Array) => np.matmul(l, r))
  return { run: () => [product(left.ref, right.ref)], close: () => [left, right].forEach((array) => array.dispose()) }
}

function conv2d(task: ConvTask): JaxWork {
  const { samples, channels, out, side, kernel } = task
  const inputs = convInputs(task)
  const x = shaped(inputs.x, [samples, channels, side, side])
  const weight = shaped(inputs.weight, [out, channels, kernel, kernel])
  const dy = shaped(inputs.dy, [samples, out, side, side])
  const conv = (a: np.Array, w: np.Array) => lax.conv(a, w, [1, 1], 'SAME')
  const forward = jit(conv)
  const backward = jit((a: np.Array, w: np.Array, d: np.Array): [np.Array, np.Array] => {
    const [y, gradients] = vjp(conv, [a, w])
    y.dispose()
    return gradients(d) as [np.Array, np.Array]
  })
  const run = () =>
    task.kind === 'conv2d-forward' ? [forward(x.ref, weight.ref)] : backward(x.ref, weight.ref, dy.ref)
  return { run, close: () => [x, weight, dy].forEach((array) => array.dispose()) }
}

type Parameters = Record<string, np.Array>

function trainingStep(task: StepTask): JaxWork {
  // Written with its softmax, matmul and mean, jit of the gradient had not ended after two minutes on two busy cores.
  if (task.model === 'gpt')
    throw new Error('jit takes minutes for the gradient of this model, and cannot be interrupted')
  const inputs = stepInputs(task)
  const { samples } = task
  const x = shaped(Float32Array.from(inputs.x), [samples, ...inputs.spec.input])
  const labels = nn.oneHot(np.array(inputs.y, { dtype: np.int32 }), inputs.classes)
  const loss = (parameters: Parameters, images: np.Array, targets: np.Array) =>
    nn
      .logSoftmax(forward(inputs.spec, parameters, images))
      .mul(targets)
      .sum()
      .mul(-1 / inputs.y.length)
  const step = jit((parameters: Parameters, images: np.Array, targets: np.Array): [Parameters, np.Array] => {
    const kept = Object.fromEntries(Object.entries(parameters).map(([name, array]) => [name, array.ref]))
    const [value, gradient] = valueAndGrad(loss)(parameters, images, targets)
    const next = Object.entries(gradient as Parameters).map(
      ([name, slope]) => [name, used(kept[name]).sub(slope.mul(STEP_RATE))] as const,
    )
    return [Object.fromEntries(next), value]
  })
  let parameters = load(inputs.spec, inputs.parameters)
  const run = () => {
    const [next, value] = step(parameters, x.ref, labels.ref)
    parameters = next
    return value
  }
  const free = () => Object.values(parameters).forEach((array) => array.dispose())
  return {
    run: () => [run()],
    async steps() {
      free()
      parameters = load(inputs.spec, inputs.parameters)
      const losses: number[] = []
      for (let i = 0; i <= STEPS_COMPARED; i++) losses.push((await run().data())[0] ?? NaN)
      return Float32Array.from(losses.slice(1), (value) => value - (losses[0] ?? NaN))
    },
    close: () => {
      free()
      x.dispose()
      labels.dispose()
    },
  }
}

function load(spec: ModelSpec, flat: Float32Array): Parameters {
  return Object.fromEntries(
    parameterLayout(spec).entries.map(({ name, shape, offset, length }) => [
      name,
      shaped(flat.slice(offset, offset + length), [...shape]),
    ]),
  )
}

interface JaxLayer {
  readonly type: string
  readonly name?: string
  readonly kernel?: number
  readonly padding?: number
}

function forward(spec: ModelSpec, parameters: Parameters, images: np.Array): np.Array {
  return (spec.layers as readonly JaxLayer[]).reduce((x, layer) => layerOf(layer, x, parameters), images)
}

function layerOf(
  { type, name = '', kernel = 2, padding = 0 }: JaxLayer,
  x: np.Array,
  parameters: Parameters,
): np.Array {
  const [weight, bias] = [parameters[`${name}.weight`], parameters[`${name}.bias`]]
  const [samples = 1, channels = 1, height = 1, width = 1] = x.shape
  switch (type) {
    case 'conv2d':
      return lax
        .conv(
          x,
          used(weight),
          [1, 1],
          [
            [padding, padding],
            [padding, padding],
          ],
        )
        .add(used(bias).reshape([-1, 1, 1]))
    case 'linear':
      return np.matmul(x, np.matrixTranspose(used(weight))).add(used(bias))
    case 'relu':
      return nn.relu(x)
    case 'avgpool2d':
      return x.reshape([samples, channels, height / kernel, kernel, width / kernel, kernel]).mean([3, 5])
    case 'flatten':
      return x.reshape([samples, -1])
    default:
      throw new Error(`expected a layer that is written for jax-js, got ${type}`)
  }
}

function shaped(values: Float32Array, shape: number[]): np.Array {
  return np.array(values).reshape(shape)
}

function used(array: np.Array | undefined): np.Array {
  if (!array) throw new Error('the model has no such parameter')
  return array
}

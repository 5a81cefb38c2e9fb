// The optimizers' GPU kernels against the exact references that rings and the parameter server apply.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { runReference, SETTINGS_LENGTH, type KernelCall } from '@starling-grid/shaders'
import { createGpuRunner } from '@starling-grid/volunteer'
import { expectClose, kernelGraph, noise } from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

/** No multiple of four. */
const LENGTH = 4099
const TOLERANCE = 1e-6

type Vectors = Record<string, Float32Array>

async function compare<K extends 'sgd.update' | 'adamw.update' | 'sum_of_squares.sum'>(
  kernel: K,
  vectors: Vectors,
  written: readonly string[],
): Promise<void> {
  const dims = { length: LENGTH }
  const lengths = Object.fromEntries(Object.entries(vectors).map(([name, vector]) => [name, vector.length]))
  const { graph, operand } = kernelGraph(
    lengths,
    (tensor) =>
      ({
        kernel,
        dims,
        operands: Object.fromEntries(Object.keys(vectors).map((name) => [name, tensor(name)])),
      }) as unknown as KernelCall<ReturnType<typeof tensor>>,
  )
  assert.ok(gpu)
  const runner = await createGpuRunner({
    device: gpu.device,
    graph,
    readText: (url) => readFile(url, 'utf8'),
    maxMicroBatch: 1,
  })
  // y is a result only; before it exists its memory may hold something else
  const write = Object.entries(vectors)
    .filter(([name]) => name !== 'y')
    .map(([name, vector]) => [operand(name), vector] as const)
  const results = await runner.run({ samples: 1, write, parts: ['forward'], read: written.map(operand) })
  runner.destroy()
  const copies = Object.fromEntries(Object.entries(vectors).map(([name, vector]) => [name, vector.slice()]))
  runReference({ kernel, dims, operands: copies } as unknown as KernelCall<Float32Array>, 1)
  for (const [i, name] of written.entries()) expectClose(results[i] ?? [], copies[name] ?? [], TOLERANCE, name)
}

function settings(...values: number[]): Float32Array {
  const vector = new Float32Array(SETTINGS_LENGTH)
  vector.set(values)
  return vector
}

const [parameters, gradient, velocity, mean] = [noise(LENGTH, 1), noise(LENGTH, 2), noise(LENGTH, 3), noise(LENGTH, 4)]
const square = noise(LENGTH, 5).map((value) => value * value)

for (const nesterov of [0, 1])
  test(`sgd with momentum, nesterov ${nesterov}, updates on the GPU as on the CPU`, { skip }, () =>
    compare('sgd.update', { settings: settings(0.1, 0.9, 0.01, nesterov), gradient, parameters, velocity }, [
      'parameters',
      'velocity',
    ]),
  )

for (const decoupled of [0, 1])
  test(`adam, decoupled decay ${decoupled}, updates on the GPU as on the CPU`, { skip }, () =>
    compare(
      'adamw.update',
      {
        settings: settings(0.01, 0.9, 0.999, 1e-8, 0.1, decoupled, 0.9 ** 3, 0.999 ** 3),
        gradient,
        parameters,
        mean,
        square,
      },
      ['parameters', 'mean', 'square'],
    ),
  )

test('the sum of squares on the GPU is that on the CPU', { skip }, () =>
  compare('sum_of_squares.sum', { x: gradient, y: new Float32Array(1) }, ['y']),
)

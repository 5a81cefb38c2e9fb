// Starling itself as a library under measurement, on the executors that volunteers use. Web-standard: runs in Node and
// in pages.
import {
  emptyStates,
  meanOfStep,
  nextVersion,
  parameterLayout,
  parseModelSpec,
  type ModelSpec,
} from '@starling-grid/model'
import type { AdapterDescription } from '@starling-grid/protocol'
import { concatenated } from '@starling-grid/protocol/floats'
import { createOptimizerState } from '@starling-grid/shaders'
import { buildGraph, createGpuExecutor, createGpuRunner, tuneOn, type Executor } from '@starling-grid/volunteer'
import type { Graph, GraphPart, GraphRunner, RunRequest, Tensor, Values } from '@starling-grid/volunteer/testing'
import { createWasmExecutor, createWasmRunner, wasmAdapter, type WasmThreads } from '@starling-grid/volunteer/wasm'
import type { Library, PreparedTask } from '../library.ts'
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
  type StepTask,
} from '../task.ts'

/** ms: what a volunteer spends on a new model */
export const TUNING = { budgetMs: 1500 } as const

/** Something that runs graphs and models: a device, or plain TypeScript. */
export interface StarlingBackend {
  readonly name: string
  readonly adapter: string
  /** steps are inner steps of local rounds: parameters stay where gradients are computed */
  readonly innerSteps?: boolean
  createRunner(graph: Graph, capacity: number): Promise<GraphRunner>
  createExecutor(spec: ModelSpec, capacity: number): Promise<Executor>
}

export function starling(backend: StarlingBackend): Library {
  return {
    name: backend.name,
    version: 'this tree',
    adapter: backend.adapter,
    prepare: async (task) => {
      switch (task.kind) {
        case 'matmul':
          return matmul(task, backend)
        case 'conv2d-forward':
        case 'conv2d-backward':
          return conv2d(task, backend)
        case 'step':
          return backend.innerSteps === true ? innerStep(task, backend) : trainingStep(task, backend)
        case 'chain':
          return chain(task, backend)
        default:
          throw task satisfies never
      }
    },
  }
}

export interface OpenDevice {
  readonly device: GPUDevice
  readonly adapter: AdapterDescription
  readonly readText: (url: URL) => Promise<string>
}

/** On a device, with variants of kernels measured first, as volunteers do; what that costs is in the first run. */
export function starlingOn(
  { device, adapter, readText }: OpenDevice,
  name = 'starling',
  { innerSteps = false } = {},
): Library {
  return starling({
    name,
    adapter: adapter.name,
    innerSteps,
    async createRunner(graph, capacity) {
      const options = { device, graph, readText, maxMicroBatch: capacity, software: adapter.software }
      return createGpuRunner({ ...options, choose: await tuneOn(TUNING, adapter, options) })
    },
    createExecutor: (spec, capacity) =>
      createGpuExecutor({ device, adapter, spec, readText, maxMicroBatch: capacity, tuning: TUNING }),
  })
}

/** On the processor, by WebAssembly. */
export function starlingOnWasm(threads: WasmThreads | undefined, name = 'starling'): Library {
  return starling({
    name,
    adapter: wasmAdapter(threads).name,
    createRunner: (graph, capacity) => createWasmRunner(graph, { threads, maxMicroBatch: capacity }),
    createExecutor: (spec, capacity) => createWasmExecutor(spec, { threads, maxMicroBatch: capacity }),
  })
}

export type OwnExecutor = 'webgpu' | 'wasm'

/** Starling first, on what was asked for, and beside the peers on the other. */
export function starlingOnBoth(executor: OwnExecutor, device: OpenDevice, threads: WasmThreads | undefined): Library[] {
  return executor === 'wasm'
    ? [starlingOnWasm(threads), starlingOn(device, 'starling-webgpu')]
    : [starlingOn(device), starlingOnWasm(threads, 'starling-wasm')]
}

/** A linear layer computes x · weightᵀ, so its weight is B transposed. All rows are one sample's. */
async function matmul(task: MatmulTask, backend: StarlingBackend): Promise<PreparedTask> {
  const { size } = task
  const { a, b } = matmulInputs(task)
  const graph = buildGraph(
    parseModelSpec({ input: [size, size], layers: [{ type: 'linear', name: 'product', out: size, bias: false }] }),
    { keepInputs: true },
  )
  const runner = await backend.createRunner(graph, 1)
  runner.loadParameters(transposed(b, size))
  return graphTask(runner, { samples: 1, write: [[graph.input, a]], parts: ['forward'], read: [graph.output] })
}

function transposed(matrix: Float32Array, size: number): Float32Array {
  return matrix.map((_, i) => matrix[(i % size) * size + Math.floor(i / size)] ?? 0)
}

async function conv2d(task: ConvTask, backend: StarlingBackend): Promise<PreparedTask> {
  const { samples, channels, out, side, kernel } = task
  const { x, weight, dy } = convInputs(task)
  const layer = { type: 'conv2d', name: 'filter', out, kernel, padding: (kernel - 1) / 2, bias: false }
  const graph = buildGraph(parseModelSpec({ input: [channels, side, side], layers: [layer] }), {
    outputGradient: 'given',
    inputGradient: true,
    keepInputs: true,
  })
  const { inputGradient } = graph
  if (!inputGradient) throw new Error('internal: the graph has no input gradient')
  const isForward = task.kind === 'conv2d-forward'
  // Without a forward pass, the backward pass prepares by itself what it would have found in training.
  const runner = await backend.createRunner(isForward ? graph : { ...graph, forward: [], evaluation: [] }, samples)
  runner.loadParameters(weight)
  return graphTask(runner, {
    samples,
    write: [
      [graph.input, x],
      [graph.outputGradient, dy],
    ],
    ...(isForward
      ? { parts: ['forward'], read: [graph.output] }
      : { parts: ['backward'], read: [inputGradient], gradient: weight.length }),
  })
}

async function chain(task: ChainTask, backend: StarlingBackend): Promise<PreparedTask> {
  const layers = Array.from({ length: task.length }, () => ({ type: 'tanh' }))
  const graph = buildGraph(parseModelSpec({ input: [task.elements], layers }), { keepInputs: true })
  const runner = await backend.createRunner(graph, 1)
  return graphTask(runner, {
    samples: 1,
    write: [[graph.input, chainInput(task)]],
    parts: ['forward'],
    read: [graph.output],
  })
}

interface GraphTask {
  readonly samples: number
  readonly write: readonly (readonly [Tensor, Values])[]
  readonly parts: readonly GraphPart[]
  readonly read: readonly Tensor[]
  /** elements of the parameters' gradient, where it belongs to the result */
  readonly gradient?: number
}

/**
 * The inputs stay on the device, as those of the peers do. Runs are issued without waiting, and the last one is read.
 */
function graphTask(runner: GraphRunner, { samples, write, parts, read, gradient }: GraphTask): PreparedTask {
  const run = (request: Partial<RunRequest>) =>
    runner.run({ samples, parts, write: [], clearGradient: gradient !== undefined, ...request })
  return {
    async result() {
      const into = new Float32Array(gradient ?? 0)
      await run({ write })
      // The second run must find everything that the first one found.
      const values = await run({ read, ...(gradient === undefined ? {} : { gradientInto: into }) })
      return concatenated([...values, into])
    },
    async time(repeats) {
      const start = performance.now()
      await Promise.all(Array.from({ length: repeats }, (_, i) => run(i === repeats - 1 ? { read } : {})))
      return performance.now() - start
    },
    close: async () => runner.destroy(),
  }
}

/**
 * As a volunteer alone does it: the gradient comes to the CPU, the exact update is applied there, the parameters go
 * back.
 */
async function trainingStep(task: StepTask, backend: StarlingBackend): Promise<PreparedTask> {
  const { spec, parameters, x, y } = stepInputs(task)
  const executor = await backend.createExecutor(spec, task.samples)
  const layout = parameterLayout(spec)
  const optimizer = { type: 'sgd', lr: STEP_RATE } as const
  const gradient = new Float32Array(layout.total)
  const version = {
    parameters: new Float32Array(layout.total),
    ...emptyStates({ layout, optimizer, outer: undefined }),
  }
  const step = async (): Promise<number> => {
    const { lossSum, targets } = await executor.gradient({ samples: task.samples, x, y }, gradient)
    const mean = meanOfStep({ layout }, gradient, { targets, clipNorm: undefined })
    nextVersion({ layout, optimizer }, version, mean, version)
    executor.loadParameters(version.parameters)
    return lossSum / targets
  }
  const begin = () => {
    version.parameters.set(parameters)
    executor.loadParameters(version.parameters)
  }
  return preparedSteps({ begin, step, close: async () => executor.destroy() })
}

/** As a volunteer makes inner steps of a round: nothing but the loss and a norm comes back. */
async function innerStep(task: StepTask, backend: StarlingBackend): Promise<PreparedTask> {
  const { spec, parameters, x, y } = stepInputs(task)
  const executor = await backend.createExecutor(spec, task.samples)
  const optimizer = { type: 'sgd', lr: STEP_RATE } as const
  const training = await executor.resident?.(optimizer)
  if (training === undefined) throw new Error('the executor keeps no inner steps')
  const order = { optimizer, state: createOptimizerState(optimizer, 0), clipNorm: undefined, wanted: () => true }
  return preparedSteps({
    begin: () => training.set(parameters),
    async step() {
      const { lossSum, targets } = await training.step({ samples: task.samples, x, y }, order)
      return lossSum / targets
    },
    close: async () => executor.destroy(),
  })
}

interface PreparedSteps {
  /** from the parameters that every library begins with */
  begin(): void | Promise<void>
  /** Returns the loss. */
  step(): Promise<number>
  close(): Promise<void>
}

function preparedSteps({ begin, step, close }: PreparedSteps): PreparedTask {
  return {
    async result() {
      await begin()
      const first = await step()
      const losses: number[] = []
      for (let i = 0; i < STEPS_COMPARED; i++) losses.push(await step())
      return Float32Array.from(losses, (loss) => loss - first)
    },
    async time(repeats) {
      const start = performance.now()
      for (let i = 0; i < repeats; i++) await step()
      return performance.now() - start
    },
    close,
  }
}

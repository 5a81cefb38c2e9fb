// Where operators compute in tests: on whatever adapter this machine has, and on WebAssembly in this thread.
import { readFile } from 'node:fs/promises'
import type { ModelSpec } from '@starling-grid/model'
import { createGpuExecutor, createGpuRunner, type Executor } from '@starling-grid/volunteer'
import type { AdapterLimits, Graph, GraphRunner } from '@starling-grid/volunteer/testing'
import { createWasmExecutor, createWasmRunner } from '@starling-grid/volunteer/wasm'
import { type OpenGpu, openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

export interface TestPlace {
  readonly name: string
  /** why nothing runs there */
  readonly skip: string | false
  /** `limits`: of buffers and bindings; absent: the place's own */
  executor(spec: ModelSpec, limits?: AdapterLimits): Promise<Executor>
  runner(graph: Graph, samples: number): Promise<GraphRunner>
  /** the same adapter, planned for as for a GPU */
  readonly asGpu?: TestPlace
}

export interface TestPlaces {
  readonly places: readonly TestPlace[]
  /** undefined where this machine has no adapter */
  readonly gpu: OpenGpu | undefined
}

export const readText = (url: URL): Promise<string> => readFile(url, 'utf8')

export async function openPlaces(): Promise<TestPlaces> {
  const { description } = await adapterEnvironment()
  const skip = description.startsWith('none') && `no adapter: ${description}`
  const gpu = skip ? undefined : await openGpu()
  const opened = (): OpenGpu => {
    if (gpu === undefined) throw new Error('internal: a test on no adapter')
    return gpu
  }
  const gpuPlace = (asGpu: boolean): TestPlace => ({
    name: asGpu ? 'the GPU, planned for as no software,' : 'the GPU',
    skip,
    executor: (spec, limits) => {
      const { device, description: adapter } = opened()
      return createGpuExecutor({ device, adapter, spec, readText, asGpu, ...(limits ? { limits } : {}) })
    },
    runner: (graph, samples) => createGpuRunner({ device: opened().device, graph, readText, maxMicroBatch: samples }),
  })
  const onGpu: TestPlace = { ...gpuPlace(false), asGpu: gpuPlace(true) }
  const onWasm: TestPlace = {
    name: 'WebAssembly',
    skip: false,
    executor: (spec, limits) => createWasmExecutor(spec, limits ? { limits } : {}),
    runner: (graph, samples) => createWasmRunner(graph, { maxMicroBatch: samples }),
  }
  return { places: [onGpu, onWasm], gpu }
}

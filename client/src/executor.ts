// What computes a model in this process.
import { readFile } from 'node:fs/promises'
import { openGpu, prepareProcess, wasmThreads } from '@starling-grid/client-node'
import type { ModelSpec } from '@starling-grid/model'
import type { ExecutorKind } from '@starling-grid/protocol'
import {
  type AdapterDescription,
  createGpuExecutor,
  createReferenceExecutor,
  type Executor,
  type GpuExecutorOptions,
  REFERENCE_ADAPTER,
} from '@starling-grid/volunteer'
import {
  createGpuDecoder,
  type FrozenSource,
  openReferenceDecoder,
  type TokenDecoder,
} from '@starling-grid/volunteer/language'
import { createWasmDecoder, createWasmExecutor, wasmAdapter } from '@starling-grid/volunteer/wasm'

export interface ExecutorChoice {
  /**
   * 'webgpu' (default): the GPU, or a software adapter; 'wasm': WebAssembly on the processor; 'reference': plain
   * TypeScript there
   */
  readonly executor?: ExecutorKind
  /** part of the wanted adapter's name */
  readonly adapter?: string
}

export interface ExecutorHandle {
  readonly executor: Executor
  /** Releases the device; the executor is destroyed before. */
  close(): void
}

interface Opened<T> {
  readonly made: T
  readonly adapter: AdapterDescription
  /** Releases the device; what was made on it is destroyed before. */
  close(): void
}

/** @throws GridError 'no-adapter' where no device computes WebGPU */
export async function openExecutor(
  spec: ModelSpec,
  { maxMicroBatch, ...choice }: ExecutorChoice & { readonly maxMicroBatch?: number },
): Promise<ExecutorHandle> {
  const bound = maxMicroBatch === undefined ? {} : { maxMicroBatch }
  const { made, close } = await opened(choice, {
    onCpu: async () => createReferenceExecutor(spec),
    onWasm: () => createWasmExecutor(spec, { threads: wasmThreads(undefined), ...bound }),
    onGpu: (device) => createGpuExecutor({ ...device, spec, ...bound }),
  })
  return { executor: made, close }
}

export interface DecoderOptions {
  /** places of a text that the model sees */
  readonly context: number
  /** of models with frozen parameters */
  readonly frozen?: FrozenSource | undefined
}

/** What goes on with a text. @throws GridError 'no-adapter' where no device computes WebGPU */
export async function openDecoder(
  spec: ModelSpec,
  { context, frozen }: DecoderOptions,
  choice: ExecutorChoice,
): Promise<Opened<TokenDecoder>> {
  return opened(choice, {
    onCpu: () => openReferenceDecoder(spec, { context, frozen }),
    onWasm: () => createWasmDecoder(spec, { threads: wasmThreads(undefined), context, frozen }),
    onGpu: (device) => createGpuDecoder({ ...device, spec, context, frozen }),
  })
}

type OnDevice = Pick<GpuExecutorOptions, 'device' | 'adapter' | 'readText'>

async function opened<T>(
  { executor = 'webgpu', adapter }: ExecutorChoice,
  make: {
    readonly onCpu: () => Promise<T>
    readonly onWasm: () => Promise<T>
    readonly onGpu: (device: OnDevice) => Promise<T>
  },
): Promise<Opened<T>> {
  if (executor === 'reference') return { made: await make.onCpu(), adapter: REFERENCE_ADAPTER, close: () => undefined }
  if (executor === 'wasm')
    return { made: await make.onWasm(), adapter: wasmAdapter(wasmThreads(undefined)), close: () => undefined }
  await prepareProcess({ adapter })
  const gpu = await openGpu({ adapter })
  const readText = (url: URL): Promise<string> => readFile(url, 'utf8')
  try {
    const made = await make.onGpu({ device: gpu.device, adapter: gpu.description, readText })
    return { made, adapter: gpu.description, close: () => gpu.close() }
  } catch (error) {
    gpu.close()
    throw error
  }
}

// What computes a model in this process.
import { readFile } from 'node:fs/promises'
import { openGpu, prepareProcess, wasmThreads } from '@starling-grid/client-node'
import type { ModelSpec } from '@starling-grid/model'
import { type ExecutorKind, GridError } from '@starling-grid/protocol'
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
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'

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
  if (choice.executor === 'wasm')
    return {
      executor: await createWasmExecutor(spec, { threads: wasmThreads(undefined), ...bound }),
      close: () => undefined,
    }
  const { made, close } = await opened(choice, {
    onCpu: async () => createReferenceExecutor(spec),
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
    onGpu: (device) => createGpuDecoder({ ...device, spec, context, frozen }),
  })
}

type OnDevice = Pick<GpuExecutorOptions, 'device' | 'adapter' | 'readText'>

async function opened<T>(
  { executor = 'webgpu', adapter }: ExecutorChoice,
  make: { readonly onCpu: () => Promise<T>; readonly onGpu: (device: OnDevice) => Promise<T> },
): Promise<Opened<T>> {
  if (executor === 'wasm')
    throw new GridError(
      'unsupported',
      'expected the executor webgpu or reference to go on with a text, got wasm; choose another --executor',
    )
  if (executor === 'reference') return { made: await make.onCpu(), adapter: REFERENCE_ADAPTER, close: () => undefined }
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

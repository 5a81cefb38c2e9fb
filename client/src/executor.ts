// What computes a model in this process.
import { readFile } from 'node:fs/promises'
import { openGpu, prepareProcess, wasmThreads } from '@starling-grid/client-node'
import type { ModelSpec } from '@starling-grid/model'
import type { ExecutorKind } from '@starling-grid/protocol'
import { createGpuExecutor, createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
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

/** @throws GridError 'no-adapter' where no device computes WebGPU */
export async function openExecutor(
  spec: ModelSpec,
  { executor = 'webgpu', adapter, maxMicroBatch }: ExecutorChoice & { readonly maxMicroBatch?: number },
): Promise<ExecutorHandle> {
  if (executor === 'reference') return { executor: createReferenceExecutor(spec), close: () => undefined }
  const bound = maxMicroBatch === undefined ? {} : { maxMicroBatch }
  if (executor === 'wasm')
    return {
      executor: await createWasmExecutor(spec, { threads: wasmThreads(undefined), ...bound }),
      close: () => undefined,
    }
  await prepareProcess({ adapter })
  const gpu = await openGpu({ adapter })
  const device = { device: gpu.device, adapter: gpu.description }
  const readText = (url: URL): Promise<string> => readFile(url, 'utf8')
  try {
    return { executor: await createGpuExecutor({ ...device, spec, readText, ...bound }), close: () => gpu.close() }
  } catch (error) {
    gpu.close()
    throw error
  }
}

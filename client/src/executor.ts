// What computes a model in this process.
import { readFile } from 'node:fs/promises'
import { openGpu, prepareProcess } from '@starling-grid/client-node'
import type { ModelSpec } from '@starling-grid/model'
import { createGpuExecutor, createReferenceExecutor, type Executor } from '@starling-grid/volunteer'

export interface ExecutorChoice {
  /** 'webgpu' (default): the GPU, or a software adapter; 'reference': plain TypeScript on the CPU */
  readonly executor?: 'webgpu' | 'reference'
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
  await prepareProcess({ adapter })
  const gpu = await openGpu({ adapter })
  const device = { device: gpu.device, adapter: gpu.description }
  const readText = (url: URL): Promise<string> => readFile(url, 'utf8')
  const bound = maxMicroBatch === undefined ? {} : { maxMicroBatch }
  try {
    return { executor: await createGpuExecutor({ ...device, spec, readText, ...bound }), close: () => gpu.close() }
  } catch (error) {
    gpu.close()
    throw error
  }
}

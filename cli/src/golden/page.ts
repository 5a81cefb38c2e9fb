// The page in which golden cases run: the volunteer's own code, built for the browser as the contribute page is.
import { openDevice } from '@starling-grid/client-web/gpu'
import { describeError, type ExecutorKind } from '@starling-grid/protocol'
import { createGpuRunner, REFERENCE_ADAPTER, ReferenceRunner } from '@starling-grid/volunteer'
import { type GoldenBackend, readGoldenCase, runGoldenCase } from '@starling-grid/volunteer/golden'
import { createWasmRunner, wasmAdapter } from '@starling-grid/volunteer/wasm'
import { fromBase64 } from '../browser/base64.ts'

let backend: GoldenBackend | undefined

async function open(executor: ExecutorKind): Promise<unknown> {
  backend = await BACKENDS[executor]()
  return backend.adapter
}

const BACKENDS: Readonly<Record<ExecutorKind, () => Promise<GoldenBackend>>> = {
  webgpu: onGpu,
  wasm: async () => ({
    adapter: wasmAdapter(),
    createRunner: (graph, capacity) => createWasmRunner(graph, { maxMicroBatch: capacity }),
  }),
  reference: async () => ({
    adapter: REFERENCE_ADAPTER,
    createRunner: async (graph, capacity) => new ReferenceRunner(graph, capacity),
  }),
}

async function onGpu(): Promise<GoldenBackend> {
  const { device, adapter } = await openDevice()
  const readText = async (url: URL) => (await fetch(url)).text()
  return {
    adapter,
    createRunner: (graph, capacity) => createGpuRunner({ device, graph, readText, maxMicroBatch: capacity }),
  }
}

/** One case; damaged files are an answer too. */
async function run(base64: string): Promise<unknown> {
  if (!backend) throw new Error('internal: nothing is open')
  try {
    return await runGoldenCase(readGoldenCase(fromBase64(base64)), backend)
  } catch (error) {
    return { verdict: 'failed', reason: describeError(error) }
  }
}

Object.assign(globalThis, { page: { open, run } })

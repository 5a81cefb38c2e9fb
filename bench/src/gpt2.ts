// Forward and backward of GPT-2 124M on one sample of 1,024 tokens, under the limits that every WebGPU device has, and
// what the process held at most. Minutes on a software adapter: one round says what it takes.
import { readFile } from 'node:fs/promises'
import { openGpu, wasmThreads } from '@starling-grid/client-node'
import { gpt, initialParameters, type ModelSpec, parameterCount } from '@starling-grid/model'
import { createGpuExecutor, type Executor } from '@starling-grid/volunteer'
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { GPT2, GPT2_SHORT } from './host.ts'
import { compared } from './row.ts'
import type { Suite, SuiteOptions } from './suite.ts'

/** WebGPU's defaults. */
const LIMITS = {
  maxStorageBufferBindingSize: 2 ** 27,
  maxBufferSize: 2 ** 28,
  maxStorageBuffersPerShaderStage: 8,
} as const
/** any ids: far apart, so that rows of the table are */
const STRIDE = 7919

export const gpt2Suite: Suite = async (options) => {
  const size = options.short ? GPT2_SHORT : GPT2
  const spec = gpt(size)
  const opened = await open(spec, options)
  try {
    opened.executor.loadParameters(initialParameters(spec, 1))
    const seconds: number[] = []
    for (let round = 0; round < options.rounds; round++) seconds.push(await step(opened.executor, size))
    const { name } = opened.executor.adapter
    const row = {
      name: `gpt2 ${size.blocks} blocks b1 × ${size.context}`,
      adapter: name,
      unit: 's a step',
      better: 'less',
    } as const
    const held = Math.round(process.resourceUsage().maxRSS / 1024)
    return [{ ...compared(row, seconds, {}), counts: { 'MB of memory at most': held } }]
  } finally {
    opened.close()
  }
}

async function open(
  spec: ModelSpec,
  { executor, adapter }: SuiteOptions,
): Promise<{ readonly executor: Executor; close(): void }> {
  if (executor === 'wasm') {
    const made = await createWasmExecutor(spec, { threads: wasmThreads(undefined), maxMicroBatch: 1 })
    return { executor: made, close: () => made.destroy() }
  }
  const gpu = await openGpu({ adapter })
  const made = await createGpuExecutor({
    device: gpu.device,
    adapter: gpu.description,
    spec,
    readText: (url) => readFile(url, 'utf8'),
    maxMicroBatch: 1,
    limits: LIMITS,
  })
  return {
    executor: made,
    close() {
      made.destroy()
      gpu.close()
    },
  }
}

/** seconds */
async function step(executor: Executor, size: typeof GPT2): Promise<number> {
  const { vocab, context } = size
  const x = Int32Array.from({ length: context }, (_, i) => (i * STRIDE) % vocab)
  const y = Int32Array.from(x, (_, i) => x[(i + 1) % context] ?? 0)
  const gradient = new Float32Array(parameterCount(gpt(size)))
  const start = performance.now()
  const { lossSum, targets } = await executor.gradient({ samples: 1, x, y }, gradient)
  const ms = performance.now() - start
  // a model that knows nothing yet takes all classes for about as likely
  if (!(Math.abs(lossSum / targets - Math.log(vocab)) < 1))
    throw new Error(`internal: expected a loss of about ${Math.log(vocab)}, got ${lossSum / targets}`)
  return ms / 1000
}

// Attention over a long sequence, forward and backward, as this adapter is given it first, beside both ways to compute
// it: by tiles in workgroup memory, and by a query or a key per invocation.
import { readFile } from 'node:fs/promises'
import { openGpu, type OpenGpu } from '@starling-grid/client-node'
import { parseModelSpec } from '@starling-grid/model'
import { buildGraph, createGpuRunner, traitsOf } from '@starling-grid/volunteer'
import { forceVariant, noise } from '@starling-grid/volunteer/testing'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

/** Above 256 tokens no adapter keeps probabilities. */
const TOKENS = 288
const HEADS = 4
const HEAD_SIZE = 64
const SAMPLES = 2
/** Of T × T by D: two in forward, five in backward; what is masked counts, too. */
const PRODUCTS = 7
const FLOPS = 2 * PRODUCTS * SAMPLES * HEADS * TOKENS ** 2 * HEAD_SIZE
export const ATTENTION_ROW =
  `attention forward and backward, ${SAMPLES}×${TOKENS} tokens, ` + `${HEADS} heads of ${HEAD_SIZE}`

const WAYS = { 'by tiles': 'shared', 'by rows': 'register' } as const

export async function attentionRow({ adapter, rounds, log }: SuiteOptions): Promise<BenchRow> {
  const gpu = await openGpu({ adapter })
  log(ATTENTION_ROW)
  const opened: { destroy(): void }[] = []
  try {
    const contender = async (family?: 'shared' | 'register') => {
      const { run, destroy } = await openAttention(gpu, family)
      opened.push({ destroy })
      return run
    }
    const ways = Object.entries(WAYS)
    const peers = await Promise.all(ways.map(async ([name, family]) => [name, await contender(family)] as const))
    const head = { name: ATTENTION_ROW, adapter: gpu.description.name, unit: 'GFLOP/s' }
    return await race(head, await contender(), Object.fromEntries(peers), rounds)
  } finally {
    for (const one of opened) one.destroy()
    gpu.close()
  }
}

async function openAttention(
  { device, description }: OpenGpu,
  family: 'shared' | 'register' | undefined,
): Promise<{ run: Contender; destroy(): void }> {
  const spec = parseModelSpec({
    input: [TOKENS, 3 * HEADS * HEAD_SIZE],
    layers: [{ type: 'attention', heads: HEADS, causal: true }],
  })
  const graph = buildGraph(spec, { outputGradient: 'given', inputGradient: true })
  const { software } = description
  const runner = await createGpuRunner({
    device,
    graph,
    software,
    maxMicroBatch: SAMPLES,
    readText: (url) => readFile(url, 'utf8'),
    ...(family ? { choose: forceVariant({ family }, traitsOf(device, software)) } : {}),
  })
  const write = [
    [graph.input, noise(graph.input.size * SAMPLES, 1)],
    [graph.outputGradient, noise(graph.outputGradient.size * SAMPLES, 2)],
  ] as const
  const run = async (): Promise<number> => {
    const start = performance.now()
    await runner.run({
      samples: SAMPLES,
      write,
      parts: ['forward', 'backward'],
      read: [graph.inputGradient ?? graph.output],
    })
    return FLOPS / (performance.now() - start) / 1e6
  }
  return { run, destroy: () => runner.destroy() }
}

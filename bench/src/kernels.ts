// Single kernels: the products that training spends its time in against other libraries, and the optimizer against a
// mere copy.
import { ATTENTION_ROW, attentionRow } from './attention.ts'
import { compare, type BenchComparison } from './compare.ts'
import { memoryRows } from './memory.ts'
import { adamwOnCpu } from './optimizer.ts'
import { shareOfPeak } from './peak.ts'
import type { BenchRow } from './row.ts'
import { inPlace, isWanted, type Suite, type SuiteOptions } from './suite.ts'
import { flopsOf, type ConvTask, type BenchTask } from './task.ts'

const CONV = { samples: 8, channels: 32, out: 64, side: 14, kernel: 3 } as const satisfies Omit<ConvTask, 'kind'>
const CONV_INPUT = `${CONV.samples}×${CONV.side}×${CONV.side}`
const CONV_NAME = `${CONV.kernel}×${CONV.kernel} ${CONV.channels}→${CONV.out} on ${CONV_INPUT}`

const COMPARISONS: readonly BenchComparison[] = [
  rate('matmul 512', { kind: 'matmul', size: 512 }),
  rate(`conv2d forward ${CONV_NAME}`, { kind: 'conv2d-forward', ...CONV }),
  rate(`conv2d backward ${CONV_NAME}`, { kind: 'conv2d-backward', ...CONV }),
]

/** In Node only, without other libraries. */
const OURS_ALONE: Readonly<Record<string, (options: SuiteOptions) => Promise<BenchRow[]>>> = {
  'matmul beside multiply-adds': async (options) => [await shareOfPeak(options)],
  [ATTENTION_ROW]: async (options) => [await attentionRow(options)],
  'adamw exact': async (options) => [await adamwOnCpu(options)],
  'activation memory': (options) => memoryRows(options),
}

function rate(name: string, task: BenchTask): BenchComparison {
  // tfjs on plain JavaScript takes seconds for a convolution's gradients, which would flatter us.
  return {
    name,
    task,
    unit: 'GFLOP/s',
    value: (ms) => flopsOf(task) / ms / 1e6,
    only: ({ name: library }) => library !== 'tfjs-cpu',
  }
}

export const kernelSuite: Suite = async (options) => {
  const rows = await inPlace(options, async (place) => {
    const compared: BenchRow[] = []
    for (const comparison of COMPARISONS.filter(({ name }) => isWanted(options, name)))
      compared.push(await compare(comparison, place, options))
    return compared
  })
  if (options.in === 'browser') return rows
  for (const [name, measure] of Object.entries(OURS_ALONE))
    if (isWanted(options, name)) rows.push(...(await measure(options)))
  return rows
}

// Samples per second of a training step: forward, backward and the update, by each library as its users would write it.
import { compare } from './compare.ts'
import type { BenchRow } from './row.ts'
import { inPlace, type Suite } from './suite.ts'
import type { StepModel } from './task.ts'

const SAMPLES = 64
const MODELS: readonly StepModel[] = ['lenet5', 'mlp']

export const stepSuite: Suite = (options) => inPlace(options, async (place) => {
  const rows: BenchRow[] = []
  for (const model of MODELS)
    rows.push(await compare({
      name: `step ${model} b${SAMPLES}`, task: { kind: 'step', model, samples: SAMPLES }, unit: 'samples/s', value: (ms) => (1000 * SAMPLES) / ms,
    }, place, options))
  return rows
})

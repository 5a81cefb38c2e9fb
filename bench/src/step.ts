// Samples per second of a training step: forward, backward and the update, by each library as its users would write it.
import { compare } from './compare.ts'
import type { BenchRow } from './row.ts'
import { inPlace, isWanted, type Suite } from './suite.ts'
import type { StepModel } from './task.ts'

/** Models with the samples of a step; gpt has 2 blocks, 128 channels and 64 tokens in a sample. */
const MODELS: readonly (readonly [StepModel, number])[] = [
  ['lenet5', 64],
  ['mlp', 64],
  ['gpt', 8],
]

const rowName = ([model, samples]: (typeof MODELS)[number]): string => `step ${model} b${samples}`

export const stepSuite: Suite = (options) =>
  inPlace(options, async (place) => {
    const rows: BenchRow[] = []
    for (const [model, samples] of MODELS.filter((model) => isWanted(options, rowName(model))))
      rows.push(
        await compare(
          {
            name: rowName([model, samples]),
            task: { kind: 'step', model, samples },
            unit: 'samples/s',
            value: (ms) => (1000 * samples) / ms,
          },
          place,
          options,
        ),
      )
    return rows
  })

// Fully connected network: flatten, then linear + relu for each hidden width, then a linear head.

import { parseModelSpec } from '../parse.ts'
import type { ModelSpec } from '../spec.ts'

export interface MlpOptions {
  readonly input: readonly number[]
  readonly hidden: readonly number[]
  readonly classes: number
  readonly inputScale?: number
}

/** @example mlp({ input: [1, 28, 28], hidden: [64], classes: 10, inputScale: 1 / 255 }) */
export function mlp({ input, hidden, classes, inputScale = 1 }: MlpOptions): ModelSpec {
  const hiddenLayers = hidden.flatMap((out, index) => [
    { type: 'linear', name: `fc${index + 1}`, out },
    { type: 'relu' },
  ])
  const head = { type: 'linear', name: `fc${hidden.length + 1}`, out: classes }
  return parseModelSpec({
    name: 'mlp',
    input,
    layers: [{ type: 'flatten' }, ...hiddenLayers, head],
    loss: 'cross_entropy',
    inputScale,
  })
}

// Tensors that a graph is given once: constants, which follow from the spec, and the frozen parameters of an imported
// model.

import { constantValues } from '@starling-grid/model'
import type { FrozenSource } from './frozen-source.ts'
import type { GraphRunner } from './runner.ts'

export function loadConstants(runner: Pick<GraphRunner, 'graph' | 'loadFixed'>): void {
  for (const [index, entry] of runner.graph.fixed.entries())
    if (entry.kind === 'constant') runner.loadFixed(index, constantValues(entry))
}

/** Gives a runner all frozen parameters of its graph. */
export async function loadFrozen(
  runner: Pick<GraphRunner, 'graph' | 'loadFixed'>,
  source: FrozenSource | undefined,
): Promise<void> {
  for (const [index, { kind, name, length }] of runner.graph.fixed.entries()) {
    if (kind === 'constant') continue
    if (source === undefined) throw new Error(`internal: nothing gives the frozen parameter ${name}`)
    const values = await source.read(name)
    if (values.length !== length)
      throw new Error(`internal: ${name} has ${length} elements, and ${values.length} were given`)
    runner.loadFixed(index, values)
  }
}

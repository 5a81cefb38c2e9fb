// Tensors that a graph is given once: constants, which follow from the spec, and the frozen parameters of an imported
// model.

import { constantValues, type FixedEntry } from '@starling-grid/model'
import type { PackedStorage } from '@starling-grid/shaders'
import type { FrozenSource } from './frozen-source.ts'
import { heldWords, isMatrix, type Packing } from './packed.ts'
import type { GraphRunner, Values } from './runner.ts'

export function loadConstants(runner: Pick<GraphRunner, 'graph' | 'loadFixed'>): void {
  for (const [index, entry] of runner.graph.fixed.entries())
    if (entry.kind === 'constant') runner.loadFixed(index, constantValues(entry))
}

/** Gives a runner all frozen parameters of its graph. */
export async function loadFrozen(
  runner: Pick<GraphRunner, 'graph' | 'loadFixed' | 'packed'>,
  source: FrozenSource | undefined,
): Promise<void> {
  for (const [index, entry] of runner.graph.fixed.entries()) {
    const { kind, name } = entry
    if (kind === 'constant') continue
    if (source === undefined) throw new Error(`internal: nothing gives the frozen parameter ${name}`)
    const values = await valuesOf(source, entry, runner.packed)
    const words = heldWords(entry, runner.packed)
    if (values.length !== words)
      throw new Error(`internal: ${name} has ${words} elements, and ${values.length} were given`)
    runner.loadFixed(index, values)
  }
}

function valuesOf(source: FrozenSource, entry: FixedEntry, storage: PackedStorage | undefined): Promise<Values> {
  if (storage === undefined || !isMatrix(entry)) return source.read(entry.name)
  if (source.packed?.storage !== storage) throw new Error(`internal: nothing gives ${entry.name} in ${storage}`)
  return source.packed.read(entry.name)
}

/** How a model's frozen matrices can lie on a device. `always`: packed although there is room for f32 */
export function packingOf(source: FrozenSource | undefined, always = false): Packing | undefined {
  return source?.packed && { storage: source.packed.storage, always }
}

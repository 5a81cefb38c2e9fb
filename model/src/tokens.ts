// Models whose input is token ids: only embeddings can take them, and only from the input.

import { layerShapes, type PlacedLayer } from './expand.ts'
import { invalid } from './fields.ts'
import type { Value } from './layers/transformer.ts'
import type { ModelSpec } from './spec.ts'

/** Whether the model's input is token ids rather than numbers. */
export function takesTokens(spec: ModelSpec): boolean {
  return tokenVocabulary(spec) !== undefined
}

/** Token ids of the input must be below this; undefined when the input is numbers. */
export function tokenVocabulary(spec: ModelSpec): number | undefined {
  const tables = layerShapes(spec).flatMap(({ layer }) => (layer.type === 'embedding' ? [layer.vocab] : []))
  return tables.length === 0 ? undefined : Math.min(...tables)
}

/** @throws GridError('model-invalid') where ids would be computed with, or something computed be taken for ids */
export function requireTokensWhereTaken(placed: readonly PlacedLayer[]): void {
  const embeddings = placed.filter(({ layer }) => layer.type === 'embedding')
  if (embeddings.length === 0) return
  const ids = inputValues(placed)
  const reads = ({ inputs }: PlacedLayer) => inputs.some((value) => ids.has(value))
  const misplaced = embeddings.find((embedding) => !reads(embedding))
  if (misplaced) throw invalid(misplaced.place, 'token ids', 'what other layers computed; it can only stand first')
  const computing = placed.find((layer) => reads(layer) && !['embedding', 'flatten'].includes(layer.layer.type))
  if (computing) throw invalid(computing.place, 'numbers', 'token ids; only an `embedding` takes them')
}

/** The input, also under other shapes. */
function inputValues(placed: readonly PlacedLayer[]): ReadonlySet<Value> {
  const values = new Set<Value>([0])
  for (const [
    i,
    {
      layer,
      inputs: [first],
    },
  ] of placed.entries())
    if (layer.type === 'flatten' && values.has(first)) values.add(i + 1)
  return values
}

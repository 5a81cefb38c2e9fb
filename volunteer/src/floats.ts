// Runs of floats: what the graph, the ring and the step loop share about flat vectors. Independent of any of them.
import { allFinite as finiteVector } from '@starling-grid/shaders'

/** From `start` up to, but not with, `end`, in floats of the flat vector. */
export interface FloatRange {
  readonly start: number
  readonly end: number
}

/** No NaN and no infinity in a run. */
export function allFinite(
  values: Float32Array,
  { start, end }: FloatRange = { start: 0, end: values.length },
): boolean {
  return finiteVector(values.subarray(start, end))
}

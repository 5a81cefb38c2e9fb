// Runs of floats: what the graph, the ring and the step loop share about flat vectors. Independent of any of them.

/** From `start` up to, but not with, `end`, in floats of the flat vector. */
export interface FloatRange {
  readonly start: number
  readonly end: number
}

/** x·0 is 0 for every finite x and NaN otherwise; one test at the end keeps the loop free of branches. */
export function allFinite(
  values: Float32Array,
  { start, end }: FloatRange = { start: 0, end: values.length },
): boolean {
  let zero = 0
  for (let i = start; i < end; i++) zero += (values[i] ?? 0) * 0
  return zero === 0
}

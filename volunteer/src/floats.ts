// Runs of floats: what the graph, the ring and the step loop share about flat vectors. Independent of any of them.

/** From `start` up to, but not with, `end`, in floats of the flat vector. */
export interface FloatRange {
  readonly start: number
  readonly end: number
}

/**
 * x·0 is 0 for every finite x and NaN otherwise; one test at the end keeps the loop free of branches. Four sums do not
 * wait for each other.
 */
export function allFinite(
  values: Float32Array,
  { start, end }: FloatRange = { start: 0, end: values.length },
): boolean {
  let [a, b, c, d] = [0, 0, 0, 0]
  const whole = start + Math.max(0, end - start - ((end - start) % 4))
  for (let i = start; i < whole; i += 4) {
    a += (values[i] ?? 0) * 0
    b += (values[i + 1] ?? 0) * 0
    c += (values[i + 2] ?? 0) * 0
    d += (values[i + 3] ?? 0) * 0
  }
  for (let i = whole; i < end; i++) a += (values[i] ?? 0) * 0
  return a + b + c + d === 0
}

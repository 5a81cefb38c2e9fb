// A gradient as runs of numbers, one behind the other: what reads it needs no vector of the model's size. What lies
// between runs is zero.

/** Numbers that are worked on in one piece: less than a millisecond. */
const PIECE_ELEMENTS = 256 * 1024

/** Valid until the next. */
export interface GradientRun {
  /** its first number in the vector */
  readonly start: number
  /** numbers that it is about */
  readonly length: number
  /** all of them, or those that have a place: the others are zero */
  readonly values: Float32Array
  /** of `values`, rising, counted from `start`; absent: each number has its value */
  readonly places?: Uint32Array
}

/** Neighbours that belong together, in runs that are a piece of work each. */
export function* runsOf(values: Float32Array, start: number): Generator<GradientRun> {
  for (let from = 0; from < values.length; from += PIECE_ELEMENTS) {
    const part = values.subarray(from, from + PIECE_ELEMENTS)
    yield { start: start + from, length: part.length, values: part }
  }
}

/** Does the work for each run, in pieces between which the caller may do other work. */
export function* overRuns(runs: Iterable<GradientRun>, work: (run: GradientRun) => void): Generator<undefined, void> {
  let worked = 0
  for (const run of runs) {
    work(run)
    worked += run.length
    if (worked < PIECE_ELEMENTS) continue
    worked = 0
    yield
  }
}

/** Runs into a vector, of which every element is written; in pieces. */
export function* writingRuns(runs: Iterable<GradientRun>, vector: Float32Array): Generator<undefined, void> {
  let written = 0
  yield* overRuns(runs, ({ start, length, values, places }) => {
    vector.fill(0, written, places === undefined ? start : start + length)
    if (places === undefined) vector.set(values, start)
    else for (let i = 0; i < places.length; i++) vector[start + (places[i] ?? 0)] = values[i] ?? 0
    written = start + length
  })
  vector.fill(0, written)
}

// A push joins a sum, weighed, in exact f32: what shards of the parameter server and sums for the ring do alike.
import { type GradientRun, overRuns, partedRun, type PushedGradient, runsOf } from '@starling-grid/model'
import { addScaled } from '@starling-grid/shaders'

const f32 = Math.fround

export interface PushWeights {
  /** of the trained part; below 1: clipped, damped */
  readonly gradient: number
  /** of running means and variances behind it: sums over samples, which being late does not make smaller */
  readonly statistics: number
}

interface PushPlace {
  /** numbers of the sum before the running means and variances */
  readonly trained: number
  readonly weights: PushWeights
}

/** sum (total,) += weights · gradient (total,). */
export function addPush(sum: Float32Array, gradient: Float32Array, place: PushPlace): void {
  for (const run of runsOf(gradient, 0)) addRun(sum, run, place)
}

/** The same of a push as it came, in pieces between which the caller may do other work. */
export function* addingPush(sum: Float32Array, gradient: PushedGradient, place: PushPlace): Generator<undefined, void> {
  yield* overRuns(gradient.runs(), (run) => addRun(sum, run, place))
}

/** sum becomes zeros, in pieces. */
export function* clearing(sum: Float32Array): Generator<undefined, void> {
  yield* overRuns(runsOf(sum, 0), ({ values }) => void values.fill(0))
}

function addRun(sum: Float32Array, run: GradientRun, { trained, weights }: PushPlace): void {
  const { before, behind } = partedRun(run, trained)
  if (before !== undefined) addWeighed(sum, before, f32(weights.gradient))
  if (behind !== undefined) addWeighed(sum, behind, f32(weights.statistics))
}

/** What is infinite and weighs nothing counts nothing: ∞ · 0 would be NaN. */
function addWeighed(sum: Float32Array, { start, length, values, places }: GradientRun, weight: number): void {
  if (!(weight > 0)) return
  if (places === undefined) return addScaled(sum.subarray(start, start + length), values, weight)
  for (let i = 0; i < places.length; i++) {
    const place = start + (places[i] ?? 0)
    sum[place] = f32((sum[place] ?? 0) + f32(weight * (values[i] ?? 0)))
  }
}

// How the learning rates of rounds follow the number of members (jobs with `groups.crowdRate`). A version is the mean
// of what all learned, which has less chance in it than what each learned. So each may go further, and so may the outer
// step. The rule is the square root, as for adaptive optimizers (Malladi et al., "On the SDEs and Scaling Rules for
// Adaptive Gradient Algorithms", 2022), up to the gradient noise scale, beyond which chance is no longer what bounds a
// step (McCandlish et al., 2018). Pure numbers of the run's state.
import { criticalCrowd } from '../async/crowd.ts'
import type { RunState } from '../state.ts'

/**
 * Volunteers that make up the noise scale, before a run has measured it: LeNet-5 on digits had 15 in its first
 * versions. Too many would make the first rounds of a training diverge, which no later version repairs.
 */
const CRITICAL_UNMEASURED = 16
/** A measured scale may be endless, and no rate may be: 16 times the rate of one is that of 256 without a bound. */
const MOST_CRITICAL = 256

/**
 * Factor of one member's learning rate where so many members' rounds make a version: √(n·(1 + c)/(n + c)). 1 for one
 * member, √n for few, and √(1 + c) at most. `critical`: c, the members whose rounds together make up the noise scale.
 * @example crowdRate(4, 16) // 1.84
 */
export function crowdRate(members: number, critical = CRITICAL_UNMEASURED): number {
  const n = Math.max(1, members)
  const c = Math.min(MOST_CRITICAL, Math.max(0, critical))
  return Math.sqrt((n * (1 + c)) / (n + c))
}

/** Of the rounds that begin now; undefined: the job's rate. Members that bring nothing back count for nothing. */
export function crowdRateNow(state: RunState): number | undefined {
  if (state.config.async.groups?.crowdRate !== 'sqrt') return undefined
  let members = 0
  for (const { leaving, missedLeases } of state.members.values()) members += Number(!leaving && missedLeases === 0)
  return crowdRate(members, criticalCrowd(state))
}

/** Members for which the outer learning rate of a job is made: those of DiLoCo (Douillard et al., 2023). */
const USUAL_MEMBERS = 8
/** Members whose mean difference is half chance, at the start of a training. */
const HALF_CHANCE = 4

/**
 * Factor of the outer learning rate where so many members' rounds make a version. The step that gains most is in
 * proportion to the part of the mean that is no chance, n/(n + c). Never below 1: the rate of the job was chosen for
 * few.
 * @example crowdGain(64) // 1.41
 */
export function crowdGain(members: number): number {
  const signal = (n: number): number => n / (n + HALF_CHANCE)
  return Math.max(1, signal(members) / signal(USUAL_MEMBERS))
}

/** Of a push that joins the open sum now: that is where the outer step takes its length from. */
export function crowdGainNow({ config, members }: RunState): number {
  return config.async.groups?.crowdRate === 'sqrt' ? crowdGain(members.size) : 1
}

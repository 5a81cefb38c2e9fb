// The state of a version that members dispute: a checkpoint, followed by the sums of the steps after it (decision
// 0020). Bounded in bytes, time and steps. It decides nothing: the reducer (run/ballot/derived-state.ts) asked.
import { describeError, type MemberId, PLAN_WINDOW, type Sha256 } from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'
import type { Job } from '../jobs/jobs.ts'
import type { Derived, SumStep } from '../run/state.ts'
import type { Checkpoint, Effect } from '../run/state.ts'
import type { FollowTask } from './recompute.ts'
import type { StepSums } from './step-sums.ts'

/** Bytes of all sums of one derivation: what members keep of them. */
const MOST_BYTES = 64 * 1024 * 1024
/** Bytes of one question: a member that answers none costs the time of no more. */
const QUESTION_BYTES = 8 * 1024 * 1024
/** ms for all of it; CONFIRM waits for it */
const MOST_MS = 120_000

export interface StateDerivationParts {
  readonly clock: CoordinatorClock
  readonly job: Job
  readonly sums: StepSums
  /** the whole state of a checkpoint that the seed does not make */
  stateOf(checkpoint: Checkpoint): Promise<Uint8Array>
  /** digest of the state that these sums lead to */
  follow(task: FollowTask): Promise<Sha256>
}

export type DeriveState = Extract<Effect, { type: 'derive-state' }>

export class StateDerivation {
  readonly #parts: StateDerivationParts

  constructor(parts: StateDerivationParts) {
    this.#parts = parts
  }

  /** Never throws, and answers within its time. */
  derive(asked: DeriveState): Promise<Derived> {
    return new Promise((resolve) => {
      const limit = new AbortController()
      const cancelTimer = this.#parts.clock.looseTimer(MOST_MS, () => {
        limit.abort()
        resolve({ why: `it took more than ${MOST_MS / 1000} s` })
      })
      this.#derived(asked, limit.signal)
        .catch((error: unknown): Derived => ({ why: describeError(error) }))
        .then((derived) => {
          cancelTimer()
          resolve(derived)
        })
    })
  }

  async #derived({ from, steps, members }: DeriveState, limit: AbortSignal): Promise<Derived> {
    const { job, sums, stateOf, follow } = this.#parts
    const bytes = steps.length * sums.bytes
    if (bytes > MOST_BYTES || sums.most < 1)
      return { why: `the sums since version ${from.version.v} have ${bytes} bytes, and members keep ${MOST_BYTES}` }
    const found = await this.#sumsOf(steps, members, limit)
    if (found === undefined) return { why: `no member serves the sums since version ${from.version.v}` }
    const isSeeded = from.blob === undefined && job.initial === undefined
    const state = isSeeded ? undefined : await stateOf(from)
    const records = steps.map(({ record }) => record)
    return {
      digest: await follow({ type: 'follow', terms: job.terms, from: from.version, state, records, sums: found }),
    }
  }

  /** In questions of bounded size. A member that does not answer one is asked no other. */
  async #sumsOf(
    steps: readonly SumStep[],
    members: readonly MemberId[],
    limit: AbortSignal,
  ): Promise<readonly Float32Array[] | undefined> {
    const { sums } = this.#parts
    const inOne = Math.max(1, Math.min(PLAN_WINDOW, Math.floor(QUESTION_BYTES / sums.bytes)))
    const found: Float32Array[] = []
    let left = members
    while (found.length < steps.length) {
      const answer = await sums.ask(left, steps.slice(found.length, found.length + inOne), limit)
      if (answer === undefined) return undefined
      found.push(...answer.sums)
      left = left.slice(left.indexOf(answer.member))
    }
    return found
  }
}

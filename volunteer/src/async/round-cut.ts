// When a round ends before all its blocks are learned from: its member leaves, or the version that the round is of
// waits no longer, since data comes slowly or the machine has other work. What whole inner steps have learned is
// pushed, and others compute the rest (G1).
import type { Clock, Consumed } from '@starling-grid/protocol'
import { onAbort } from '../abort.ts'

/**
 * Part of the time of its lease after which a round is due. A lease is three times as long as the round should be
 * (coordinator/src/run/groups/group-rounds.ts), and a version waits a fifth of a round for those that are late.
 */
export const ROUND_PART = 0.37

/**
 * Part of that time after which a round without one inner step is given up, where its data is still on its way. If its
 * lease ran out, its blocks would be suspected of what they did not do.
 */
export const HOPE_PART = 0.8

interface RoundTerms {
  /** ms of its lease */
  readonly deadlineMs: number
  readonly leaving: AbortSignal
  /** samples of it are on their way */
  isLoading(): boolean
}

export class RoundCut {
  readonly #cut = new AbortController()
  readonly #ends: (() => void)[]
  #hasLearned = false
  #isDue = false

  constructor(clock: Clock, { deadlineMs, leaving, isLoading }: RoundTerms) {
    const cut = (): void => this.#cut.abort()
    this.#ends = [
      onAbort(leaving, cut),
      clock.timer(ROUND_PART * deadlineMs, () => {
        this.#isDue = true
        this.#cutIfDue()
      }),
      clock.timer(HOPE_PART * deadlineMs, () => {
        if (isLoading()) cut()
      }),
    ]
  }

  get signal(): AbortSignal {
    return this.#cut.signal
  }

  /** One inner step is made where there is data for it: without one the time would be lost. */
  learned({ blocks }: Pick<Consumed, 'blocks'>): void {
    this.#hasLearned = blocks.length > 0
    this.#cutIfDue()
  }

  #cutIfDue(): void {
    if (this.#isDue && this.#hasLearned) this.#cut.abort()
  }

  /** The round is over. */
  end(): void {
    for (const end of this.#ends) end()
  }
}

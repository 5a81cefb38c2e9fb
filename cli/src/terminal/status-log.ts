// The state of a volunteer as lines of a log: one when it changes, none for each step.
import type { Log } from '@starling-grid/coordinator'
import type { VolunteerPhase, VolunteerStatus } from '@starling-grid/volunteer'

/** Phases that follow each other within a step. */
const OF_A_STEP: ReadonlySet<VolunteerPhase> = new Set(['computing', 'exchanging', 'validating'])

export class StatusLog {
  readonly #log: Log
  readonly #member: string
  #last = ''

  constructor(log: Log, member: string) {
    this.#log = log
    this.#member = member
  }

  show({ phase, detail, job, mode, version, samplesCommitted }: VolunteerStatus): void {
    const message = OF_A_STEP.has(phase) ? `trains "${job?.name ?? ''}"` : `${phase}: ${detail}`
    if (message === this.#last) return
    this.#last = message
    const level = phase === 'failed' ? 'error' : 'info'
    this.#log({
      level,
      message,
      member: this.#member,
      about: { phase, mode: mode ?? 'none', version, samplesCommitted },
    })
  }
}

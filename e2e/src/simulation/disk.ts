// The disk under a simulated coordinator, and what waits for it: decisions run ahead of it, effects leave in their
// order when the journal rows before them are durable (R1). It can be slow, fail for a while, and takes what waits with
// it when the process dies.
import type { Effect } from '@starling-grid/coordinator/run'
import type { Row } from '../world/chronicle.ts'
import type { Context } from './context.ts'

/** ms until a failed append is tried again */
const RETRY_MS = 300

export interface Decided {
  readonly effects: readonly Effect[]
  readonly at: number
  /** of the push that the decision was about */
  readonly gradient: Float32Array | undefined
}

export interface DiskUser {
  readonly name: string
  readonly alive: boolean
  /** All of them or none; false: another coordinator owns the journal. */
  append(rows: readonly Row[]): boolean
  /** The rows of this decision are durable. */
  carryOut(decided: Decided): void
}

export class Disk {
  readonly #context: Context
  readonly #user: DiskUser
  #waiting: Decided[] = []
  #writing = false
  #failsUntil = 0

  constructor(context: Context, user: DiskUser) {
    this.#context = context
    this.#user = user
  }

  /** Nothing decided waits to become durable. */
  get idle(): boolean {
    return this.#waiting.length === 0 && !this.#writing
  }

  fail(ms: number): void {
    this.#failsUntil = this.#context.agenda.now + ms
  }

  add(decided: Decided): void {
    this.#waiting.push(decided)
    this.#drain()
  }

  #drain(): void {
    while (this.#user.alive && !this.#writing && this.#waiting.length > 0) {
      const batch = this.#waiting
      this.#waiting = []
      const rows = batch.flatMap(rowsOf)
      if (rows.length > 0 && this.#isSlow) return this.#writeLater(batch, rows)
      this.#leave(batch, rows)
    }
  }

  get #isSlow(): boolean {
    const { scenario, agenda } = this.#context
    return scenario.diskMs > 0 || agenda.now < this.#failsUntil
  }

  #writeLater(batch: readonly Decided[], rows: readonly Row[]): void {
    const { agenda, dice, scenario, counts } = this.#context
    this.#writing = true
    counts.slowAppends++
    const fails = agenda.now < this.#failsUntil
    agenda.later(
      fails ? RETRY_MS : dice.between(0, scenario.diskMs),
      () => `${this.#user.name} ${fails ? 'tries its disk again' : `wrote ${rows.length} rows`}`,
      () => {
        if (!this.#user.alive) {
          counts.lostDecisions += batch.length
          return
        }
        if (agenda.now < this.#failsUntil) return this.#writeLater(batch, rows)
        this.#writing = false
        this.#leave(batch, rows)
        this.#drain()
      },
    )
  }

  #leave(batch: readonly Decided[], rows: readonly Row[]): void {
    if (rows.length > 0 && !this.#user.append(rows)) return
    for (const decided of batch) if (this.#user.alive) this.#user.carryOut(decided)
  }
}

function rowsOf({ effects, at }: Decided): Row[] {
  return effects.flatMap((effect) => (effect.type === 'journal' ? effect.entries : [])).map((entry) => ({ entry, at }))
}

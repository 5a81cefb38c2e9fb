// Carries out effects in order. Pending journal rows are appended in one batch (one fsync); then the messages are sent
// (R1). While the disk fails nothing leaves; it is tried again until there is space.
import { type Clock, isGridError } from '@starling-grid/protocol'
import type { JournalRow } from '../journal/state-store.ts'
import type { Effect } from '../run/state.ts'

/** ms before the first further attempt to write to a disk that failed; doubles up to the longest */
const FIRST_RETRY_MS = 50
const LONGEST_RETRY_MS = 2000

export interface Decided<C> {
  readonly effects: readonly Effect[]
  /** ms since the epoch */
  readonly at: number
  /** what the caller needs to carry the effects out */
  readonly context: C
}

export interface OutboxParts<C> {
  readonly clock: Clock
  /** Tried again while it fails: it has no other effect than the rows. */
  append(rows: readonly JournalRow[]): Promise<void>
  /** once for all rows that are durable, in their order */
  onDurable(rows: readonly JournalRow[]): void
  /** may throw GridError: it is called again after a while. Anything else is a defect, told and passed over */
  carryOut(effect: Effect, decided: Decided<C>): Promise<void> | void
  /** all effects of one decision left */
  onDone(decided: Decided<C>): void
  /** nothing of this decision, or no more of it, leaves: the outbox is closed */
  onAbandoned(decided: Decided<C>): void
  /** undefined: it works again */
  onTrouble(error: unknown): void
  onDefect(error: unknown): void
  /** another coordinator owns the run: nothing more leaves */
  onDeposed(error: unknown): void
}

export class Outbox<C> {
  readonly #parts: OutboxParts<C>
  #waiting: Decided<C>[] = []
  #running: Promise<void> | undefined
  #closed = false
  /** raised by close(): what waits for another attempt waits no longer */
  readonly #closing = new AbortController()

  constructor(parts: OutboxParts<C>) {
    this.#parts = parts
  }

  add(decided: Decided<C>): void {
    if (this.#closed) return this.#parts.onAbandoned(decided)
    this.#waiting.push(decided)
    this.#running ??= this.#drain()
  }

  /** Resolves when all that was added has left, or cannot leave because the disk fails. */
  async close(): Promise<void> {
    this.#closed = true
    this.#closing.abort()
    await this.#running
  }

  async #drain(): Promise<void> {
    // What arrives in the same turn of the event loop shares one fsync.
    await this.#parts.clock.sleep(0)
    try {
      while (this.#waiting.length > 0) await this.#next()
    } finally {
      this.#running = undefined // at once: what is added from here on has to begin anew
    }
  }

  async #next(): Promise<void> {
    const batch = this.#waiting
    this.#waiting = []
    if (!(await this.#save(rowsOf(batch)))) return this.#abandon(batch)
    for (let decided = batch.shift(); decided !== undefined; decided = batch.shift()) {
      if (!(await this.#leave(decided))) return this.#abandon([decided, ...batch])
    }
  }

  async #save(rows: readonly JournalRow[]): Promise<boolean> {
    if (rows.length === 0) return true
    if (!(await this.#persistently(() => this.#parts.append(rows)))) return false
    try {
      this.#parts.onDurable(rows)
    } catch (error) {
      this.#parts.onDefect(error)
    }
    return true
  }

  /** Callers that wait are answered. */
  #abandon(batch: readonly Decided<C>[]): void {
    const abandoned = [...batch, ...this.#waiting]
    this.#waiting = []
    for (const decided of abandoned) this.#parts.onAbandoned(decided)
  }

  async #leave(decided: Decided<C>): Promise<boolean> {
    for (const effect of decided.effects) {
      if (!(await this.#persistently(() => this.#carryOut(effect, decided)))) return false
    }
    this.#parts.onDone(decided)
    return true
  }

  async #carryOut(effect: Effect, decided: Decided<C>): Promise<void> {
    try {
      await this.#parts.carryOut(effect, decided)
    } catch (error) {
      if (isGridError(error)) throw error
      this.#parts.onDefect(error)
    }
  }

  /** Tries until it works; false when it never will, or when the process is to end. */
  async #persistently(deed: () => Promise<void>): Promise<boolean> {
    for (let failures = 0; ; failures++) {
      try {
        await deed()
        if (failures > 0) this.#parts.onTrouble(undefined)
        return true
      } catch (error) {
        if (isGridError(error) && error.code === 'lease-stale') return this.#deposed(error)
        this.#parts.onTrouble(error)
      }
      if (this.#closed) return false
      const waitMs = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** failures)
      await this.#parts.clock.sleep(waitMs, this.#closing.signal)
    }
  }

  #deposed(error: unknown): false {
    this.#closed = true
    this.#parts.onDeposed(error)
    return false
  }
}

function rowsOf(batch: readonly Decided<unknown>[]): readonly JournalRow[] {
  const rows: JournalRow[] = []
  for (const { effects, at } of batch)
    for (const effect of effects)
      if (effect.type === 'journal') for (const entry of effect.entries) rows.push({ entry, at })
  return rows
}

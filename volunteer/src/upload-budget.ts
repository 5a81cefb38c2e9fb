// What may still leave this machine in an hour. All volunteers of its owner share one limit: each writes down what it
// sent, where a restart and the others find it.
import { type GridError, parseJson } from '@starling-grid/protocol'
import type { KeptNotes } from './kept-notes.ts'
import { overLimit } from './own-limits.ts'

interface Sent {
  /** ms since the epoch: when the first of these bytes was sent */
  readonly since: number
  readonly bytes: number
}

const HOUR_MS = 3_600_000
/** ms for which what was sent is kept: twice as long as it counts */
export const UPLOADS_KEPT_MS = 2 * HOUR_MS
/**
 * What is written down before it is sent: half of what was sent so far, between these parts of an hour's bytes. Then
 * the others' notes are read, so that together they send at most the larger part each beyond the limit. A volunteer
 * that sends little takes little from the others, however often it is started.
 */
const MOST_AHEAD = 0.01
const LEAST_AHEAD = 0.0001
const MAX_NOTE_BYTES = 1024
const NOTHING: Sent = { since: Number.NEGATIVE_INFINITY, bytes: 0 }

/** The present hour begins with the first byte of any of them; one that comes later joins it. */
export class UploadBudget {
  readonly #perHour: number
  readonly #now: () => number
  readonly #notes: KeptNotes | undefined
  #own = NOTHING
  #others: readonly Sent[] = []
  /** of the present hour: what the others and a restart find, never less than what was sent */
  #written = 0
  /** ends when all that was written down is stored, and the others' notes were read after it */
  #stored: Promise<unknown> = Promise.resolve()
  #refused = false
  /** called when bytes were refused */
  onSpent: ((error: GridError) => void) | undefined

  /** `wallTime`: ms since the epoch */
  constructor(perHour: number, wallTime: () => number, notes?: KeptNotes) {
    this.#perHour = perHour
    this.#now = wallTime
    this.#notes = notes
  }

  /** What others, and earlier processes, sent in the present hour. */
  async load(): Promise<void> {
    const texts = await this.#notes?.others().catch(() => []) // no storage: each counts by itself
    this.#others = (texts ?? []).map(sentIn)
  }

  /** Before the bytes are sent. @throws GridError 'own-limit' */
  take(bytes: number): void {
    if (this.#leftMs(this.#own) <= 0) {
      this.#own = { since: Math.min(this.#now(), ...this.#counted.map(({ since }) => since)), bytes: 0 }
      this.#written = 0
      this.#refused = false
    }
    const sent = this.#counted.reduce((sum, counted) => sum + counted.bytes, bytes)
    if (sent > this.#perHour) {
      this.#refused = true
      const error = overLimit('upload', sent, this.#perHour)
      this.onSpent?.(error)
      throw error
    }
    this.#own = { ...this.#own, bytes: this.#own.bytes + bytes }
    if (this.#own.bytes > this.#written) this.#write()
  }

  #write(): void {
    const ahead = Math.min(MOST_AHEAD * this.#perHour, Math.max(LEAST_AHEAD * this.#perHour, this.#own.bytes / 2))
    this.#written = Math.min(this.#perHour, this.#own.bytes + ahead)
    const text = JSON.stringify({ since: this.#own.since, bytes: this.#written } satisfies Sent)
    // One after the other: an older text must not replace a newer one. No storage: it is known until the end.
    this.#stored = this.#stored
      .then(() => this.#notes?.write(text))
      .catch(() => undefined)
      .then(() => this.load())
  }

  /** Bytes were refused in the present hour. */
  get isSpent(): boolean {
    return this.#refused && this.refillMs > 0
  }

  /** until the next hour begins; a clock that was set back begins one */
  get refillMs(): number {
    const ends = this.#counted.map((sent) => this.#leftMs(sent))
    return ends.length === 0 ? 0 : Math.min(...ends)
  }

  get #counted(): readonly Sent[] {
    return [this.#own, ...this.#others].filter((sent) => this.#leftMs(sent) > 0)
  }

  #leftMs({ since }: Sent): number {
    const passed = this.#now() - since
    return passed < 0 ? 0 : HOUR_MS - passed
  }
}

/** An absent or damaged text says that nothing was sent. */
function sentIn(text: string): Sent {
  try {
    const sent: unknown = parseJson(text, MAX_NOTE_BYTES, 'bytes that were sent')
    return isSent(sent) ? sent : NOTHING
  } catch {
    return NOTHING
  }
}

function isSent(value: unknown): value is Sent {
  if (typeof value !== 'object' || value === null) return false
  const { since, bytes } = value as Partial<Record<keyof Sent, unknown>>
  return Number.isFinite(since) && typeof bytes === 'number' && bytes >= 0
}

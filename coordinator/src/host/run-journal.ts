// The journal of one run: appends its rows, and now and then a snapshot that lets the rows before it go. A snapshot is
// made of the durable rows alone (run-history.ts), never of decisions that are ahead of the disk (R1).
import { GridError, type JobId, parse } from '@starling-grid/protocol'
import { fenceAfter } from '../journal/fence.ts'
import { snapshotPlace } from '../journal/record-rows.ts'
import type { JournalRow, StateStore } from '../journal/state-store.ts'
import { snapshotDue } from '../run/history/snapshot-due.ts'
import { WrittenRunSchema } from '../run/history/written-run.ts'
import type { RunHistory } from './run-history.ts'
import type { RunMeter } from './run-meter.ts'

export interface RunJournalParts {
  readonly job: JobId
  readonly store: StateStore
  readonly history: RunHistory
  /** ms since the epoch */
  readonly now: () => number
  readonly meter?: RunMeter | undefined
  /** no snapshot can be made: the journal keeps all rows instead */
  readonly onTrouble: (text: string) => void
}

export class RunJournal {
  readonly #parts: RunJournalParts
  /** of the last `owner` row that is durable */
  #fence = 0
  /** behind the newest snapshot */
  #rows = 0
  /** ms: when that was written */
  #since: number
  /** the history has every durable row */
  #isWhole = true

  constructor(parts: RunJournalParts) {
    this.#parts = parts
    this.#since = parts.now()
  }

  /** Of this owner. */
  get fence(): number {
    return this.#fence
  }

  /** Rows that a restart would replay. */
  get rows(): number {
    return this.#rows
  }

  /** The journal as it was taken over. @throws GridError 'journal-damaged'; Error when it contradicts itself */
  replay(rows: readonly JournalRow[]): void {
    for (const row of rows) this.#parts.history.observe(row)
    this.#fence = this.#parts.history.state.fence
    this.#rows = rows.length - snapshotPlace(rows.map(({ entry }) => entry))
  }

  /** R1: durable when it resolves. @throws GridError 'lease-stale', 'disk-failed' */
  async append(rows: readonly JournalRow[], ended = false): Promise<void> {
    const { job, store, now } = this.#parts
    const at = now()
    const { due } = snapshotDue({ rows: this.#rows, since: this.#since, ended }, at)
    const snapshot = due ? this.#snapshot(at) : []
    if (snapshot.length + rows.length === 0) return
    await this.#measured([...snapshot, ...rows], (all) => store.append(job, this.#fence, all))
    if (snapshot.length > 0) [this.#rows, this.#since] = [0, at]
    this.#fence = fenceAfter(this.#fence, rows)
    this.#rows += rows.length
  }

  async #measured(rows: readonly JournalRow[], append: (rows: readonly JournalRow[]) => Promise<void>): Promise<void> {
    const done = this.#parts.meter?.appending()
    try {
      await append(rows)
    } catch (error) {
      done?.(undefined)
      throw error
    }
    done?.(rows)
  }

  /** Once for all rows that were appended. @throws Error when they contradict the rows before */
  durable(rows: readonly JournalRow[]): void {
    try {
      for (const row of rows) this.#parts.history.observe(row)
    } catch (error) {
      this.#isWhole = false
      throw error
    }
  }

  /** The run is over: its history leaves memory, and no snapshot is made of what is left. */
  release(): void {
    this.#isWhole = false
    this.#parts.history.release()
  }

  /** None when the history lacks a row, or when a restart would refuse it. */
  #snapshot(at: number): JournalRow[] {
    if (!this.#isWhole) return []
    try {
      const entry = this.#parts.history.snapshot()
      parse(WrittenRunSchema, entry.run, 'a snapshot', 'journal-damaged')
      return [{ at, entry }]
    } catch (error) {
      if (!(error instanceof GridError)) throw error
      this.#isWhole = false
      this.#parts.onTrouble(`defect: the journal keeps all its rows: ${error.message}`)
      return []
    }
  }
}

// What a run counts for the operator of its coordinator: durable rows, refusals, relayed bytes. Nothing here is decided
// by it, and it names neither members nor jobs.
import type { ErrorCode } from '@starling-grid/protocol'
import type { JournalRow } from '../journal/state-store.ts'

export interface RunMeter {
  /**
   * An append to a journal begins. The answer is called with the rows that are durable, or undefined when it failed.
   */
  appending(): (written: readonly JournalRow[] | undefined) => void
  refused(code: ErrorCode): void
  relayed(bytes: number): void
}

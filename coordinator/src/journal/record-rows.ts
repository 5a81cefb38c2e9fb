// The committed chain apart from the journal: what a store keeps of it when rows are appended, so that the rows
// themselves can be dropped. One rule for every store.
import type { StepRecord } from '@starling-grid/protocol'
import type { JournalEntry } from '../run/state.ts'

/** In their order: records above a version go, or a record comes. */
export type RecordChange = { readonly above: number } | { readonly record: StepRecord }

export function recordChanges(entries: Iterable<JournalEntry>): RecordChange[] {
  return [...entries].flatMap((entry): RecordChange[] => {
    switch (entry.type) {
      case 'start':
      case 'commit':
        return entry.records.map((record) => ({ record }))
      case 'rewind':
        return [{ above: entry.to.v }]
      default:
        return []
    }
  })
}

/** Rows before this place are superseded by the newest snapshot among the entries; 0: there is none. */
export function snapshotPlace(entries: readonly JournalEntry[]): number {
  return Math.max(
    0,
    entries.findLastIndex(({ type }) => type === 'snapshot'),
  )
}

// The durable journal with its fence, as a simulated coordinator writes and reads it.
import { type JournalEntry, replay, type RunConfig, writtenRun } from '@starling-grid/coordinator/run'
import type { Row } from '../world/chronicle.ts'

export class Journal {
  readonly entries: Row[] = []
  /** the last owner entry: appends of other owners fail */
  fence = 0

  /** R2, as StateStore.takeOver does: the next reader of the journal reads all that earlier owners appended. */
  takeOver(at: number): Extract<JournalEntry, { type: 'fence' }> {
    this.fence = Math.max(this.fence + 1, Math.floor(at))
    const entry = { type: 'fence', fence: this.fence } as const
    this.entries.push({ entry, at })
    return entry
  }

  append(rows: readonly Row[], fence: number): boolean {
    if (fence !== this.fence) return false
    this.entries.push(...rows)
    for (const { entry } of rows) if (entry.type === 'fence') this.fence = entry.fence
    return true
  }

  /** The data folder of an earlier moment. */
  restore(rows: number): void {
    this.entries.length = rows
    const last = this.entries.findLast(({ entry }) => entry.type === 'fence')?.entry
    this.fence = last?.type === 'fence' ? last.fence : 0
  }
}

/**
 * The rows as a restart finds them when a snapshot was written after the first `place`, by way of its bytes. `forgets`:
 * the mutant that leaves something out.
 */
export function snapshotted(config: RunConfig, rows: readonly Row[], place: number, forgets = false): Row[] {
  const run = writtenRun(replay(config, rows.slice(0, place)))
  const written = { ...run, ...(forgets ? { leasesReserved: 0 } : {}) }
  const entry = { type: 'snapshot', run: written, shown: {} } as const
  return [JSON.parse(JSON.stringify({ at: rows[place - 1]?.at ?? 0, entry })) as Row, ...rows.slice(place)]
}

// Journal rows that later ones make superfluous: a replay without them makes the same state. What is left is the work
// itself and a bounded number of others, however often members came and went or coordinators started.
import { RINGS_KEPT } from '../history/kept.ts'
import type { JournalEntry } from '../state.ts'

/** Kinds of which the last one alone counts. */
const LAST_COUNTS: ReadonlySet<JournalEntry['type']> = new Set(['fence', 'ballot', 'lease', 'mode', 'paused'])

/** Places of such entries. Counters stay (R16): the last entry of each kind holds them. */
export function superseded(entries: readonly JournalEntry[]): number[] {
  const seen = new Set<JournalEntry['type']>()
  const places: number[] = []
  let starts = 0
  // The first entry stays: it says when the run began.
  for (let place = entries.length - 1; place > 0; place--) {
    const entry = entries[place]
    if (entry === undefined) continue
    const isOldStart = entry.type === 'start' && ++starts > RINGS_KEPT && entry.records.length === 0
    const isGap = entry.type === 'ballot' && entry.after !== undefined
    const isOldCounter = LAST_COUNTS.has(entry.type) && seen.has(entry.type) && !isGap
    if (isOldStart || isOldCounter) places.push(place)
    seen.add(entry.type)
  }
  return places
}

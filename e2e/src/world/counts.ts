// What happened in a simulated grid: tests ask whether the rare states were reached.
import { CHRONICLED } from './chronicle.ts'

const COUNTED = [...CHRONICLED] as const
export type Counted = (typeof COUNTED)[number]
export type Counts = Record<Counted, number>

export function noCounts(): Counts {
  return Object.fromEntries(COUNTED.map((name) => [name, 0])) as Counts
}

export function addCounts(total: Counts, one: Counts): void {
  for (const name of COUNTED) total[name] += one[name]
}

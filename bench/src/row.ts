// One line of a benchmark: ours against peers, measured in turns in the same run.

/** Ours beside each peer, by the peer's name. */
export interface RowComparison {
  readonly peers: Readonly<Record<string, number>>
  /** how many times better ours is: ours ÷ peer, or peer ÷ ours where less is better */
  readonly ratio: Readonly<Record<string, number>>
  /** the ratio to a peer that we want; a table says whether the row reaches it */
  readonly reach?: Reach
  /** absent: more is better */
  readonly better?: 'less'
  /** smallest and largest of each peer */
  readonly spread?: Readonly<Record<string, readonly [number, number]>>
  /** first run of each, ours included, with everything that is compiled and cached in it */
  readonly firstRunMs?: Readonly<Record<string, number>>
  /** ‖its result − reference‖ ÷ ‖reference‖ of each, ours included */
  readonly errors?: Readonly<Record<string, number>>
  /** what is not in the comparison, and why */
  readonly missing?: Readonly<Record<string, string>>
  readonly versions?: Readonly<Record<string, string>>
  /** what was counted while it was measured, such as steps that were lost */
  readonly counts?: Readonly<Record<string, number>>
}

export interface BenchRow extends RowComparison {
  readonly name: string
  readonly adapter: string
  /** median */
  readonly ours: number
  readonly unit: string
  readonly min: number
  readonly max: number
}

/** What a row is of, before anything is measured. */
export type RowHead = Pick<BenchRow, 'name' | 'adapter' | 'unit' | 'better' | 'reach'>

export interface Reach {
  readonly peer: string
  /** as in `ratio`: 0.99 for a loss that is at most 1 % higher than the peer's */
  readonly ratio: number
}

/** Of a row whose aim is a figure: it stands beside the peers under this name. */
export const toAim: Reach = { peer: 'aim', ratio: 1 }

/** A contender: does its work once and answers with its result in the row's unit. */
export type Contender = () => Promise<number>

/**
 * ms before each round. Threads of a peer that was measured last may wait for work in a loop, and would take a core
 * from the next peer.
 */
const REST_MS = 300

/** Interleaved rounds (A B A B …), so that what else the machine does falls on all alike; medians. */
export async function race(
  row: RowHead,
  ours: Contender,
  peers: Readonly<Record<string, Contender>>,
  rounds: number,
): Promise<BenchRow> {
  const contenders = { ours, ...peers }
  const results: Record<string, number[]> = {}
  for (const [, run] of Object.entries(contenders)) await run() // warm-up: compile, cache
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of Object.entries(contenders)) {
      await new Promise((resolve) => {
        setTimeout(resolve, REST_MS)
      })
      ;(results[name] ??= []).push(await run())
    }
  const { ours: mine = [], ...theirs } = results
  return compared(row, mine, theirs)
}

/**
 * Of figures that were taken in turns. Rates want the median, which a slow round does not move; losses of seeds the
 * mean.
 */
export function compared(
  row: RowHead,
  mine: readonly number[],
  theirs: Readonly<Record<string, readonly number[]>>,
  middle = median,
): BenchRow {
  const own = middle(mine)
  const others = mapped(theirs, middle)
  return {
    ...row,
    ours: rounded(own),
    min: rounded(Math.min(...mine)),
    max: rounded(Math.max(...mine)),
    peers: mapped(others, rounded),
    ratio: mapped(others, (value) => rounded(row.better === 'less' ? value / own : own / value)),
    spread: mapped(theirs, (values) => [rounded(Math.min(...values)), rounded(Math.max(...values))] as const),
  }
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? 0
}

export function rounded(value: number): number {
  return Number(value.toPrecision(4))
}

function mapped<A, B>(values: Readonly<Record<string, A>>, change: (value: A) => B): Record<string, B> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]))
}

// One line of a benchmark: ours against peers, measured in turns in the same run.

export interface BenchRow {
  readonly name: string
  readonly adapter: string
  /** median */
  readonly ours: number
  readonly unit: string
  readonly min: number
  readonly max: number
  readonly peers: Readonly<Record<string, number>>
  /** ours ÷ peer */
  readonly ratio: Readonly<Record<string, number>>
}

/** A contender: does its work once and answers with its result in the row's unit. */
export type Contender = () => Promise<number>

/** Interleaved rounds (A B A B …), so that what else the machine does falls on all alike; medians. */
export async function race(row: { readonly name: string; readonly adapter: string; readonly unit: string }, ours: Contender, peers: Readonly<Record<string, Contender>>, rounds: number): Promise<BenchRow> {
  const contenders = { ours, ...peers }
  const results: Record<string, number[]> = {}
  for (const [, run] of Object.entries(contenders)) await run() // warm-up: compile, cache
  for (let round = 0; round < rounds; round++) for (const [name, run] of Object.entries(contenders)) (results[name] ??= []).push(await run())
  const medians = Object.fromEntries(Object.entries(results).map(([name, values]) => [name, median(values)]))
  const { ours: own = 0, ...others } = medians
  const ratio = Object.fromEntries(Object.entries(others).map(([name, value]) => [name, rounded(own / value)]))
  const mine = results['ours'] ?? []
  return { ...row, ours: rounded(own), min: rounded(Math.min(...mine)), max: rounded(Math.max(...mine)), peers: others, ratio }
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? 0
}

function rounded(value: number): number {
  return Number(value.toPrecision(4))
}

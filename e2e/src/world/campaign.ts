// Many seeds, spread over processes, and what they came to.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism, setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Errand, Report } from './campaign-worker.ts'
import { addCounts, type Counts, noCounts } from './counts.ts'
import type { GridOptions } from './scenario.ts'
import { type GridOutcome, simulateGrid } from './world.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../../bin/typescript.mjs', import.meta.url))
const WORKER = fileURLToPath(new URL('campaign-worker.ts', import.meta.url))
/** seeds of one errand: few, so that all processes end at about the same time */
const ERRAND_SEEDS = 10
/** A quarter less of a core: room for short-lived objects, code that is optimized late, errors without a stack. */
const QUICK = [
  '--min-semi-space-size=64',
  '--max-semi-space-size=64',
  '--single-threaded-gc',
  '--always-sparkplug',
  '--interrupt-budget=600000',
  '--stack-trace-limit=0',
]
/**
 * What runs beside a campaign, real grids whose members time each other, goes first, and seeds fill what cores are
 * left; but they get on too where others always want more: a third of what each of those gets.
 */
const NICENESS = 5
/** lines of a story that are told of a seed that failed */
const TOLD_LINES = 80

/** What a seed came to, without its story. */
export type Came = Extract<Report, { type: 'seed' }>['outcome']

export interface Campaign {
  readonly seeds: number
  readonly events: number
  /** by their seed */
  readonly failures: readonly Came[]
  readonly counts: Counts
  /** kind of fault → how often it happened */
  readonly faults: ReadonlyMap<string, number>
  /** of one seed, virtual ms */
  readonly longestMs: number
}

export interface CampaignOptions {
  readonly first: number
  readonly seeds: number
  readonly options?: GridOptions
  readonly processes?: number
  readonly each?: (outcome: Came) => void
}

/** @throws Error when a process of it dies */
export async function campaign({
  first,
  seeds,
  options = {},
  processes = availableParallelism(),
  each = () => undefined,
}: CampaignOptions): Promise<Campaign> {
  const counts = noCounts()
  const faults = new Map<string, number>()
  const failures: Came[] = []
  let [events, longestMs, next] = [0, 0, first]
  const take = (outcome: Came): void => {
    if (outcome.violation !== undefined) failures.push(outcome)
    addCounts(counts, outcome.counts)
    for (const fault of outcome.faults) faults.set(fault, (faults.get(fault) ?? 0) + 1)
    events += outcome.events
    longestMs = Math.max(longestMs, outcome.ms)
    each(outcome)
  }
  const errand = (): Errand | undefined => {
    if (next >= first + seeds) return undefined
    const begin = next
    next = Math.min(first + seeds, next + ERRAND_SEEDS)
    return { first: begin, seeds: next - begin, options }
  }
  await Promise.all(Array.from({ length: processes }, () => work(errand, take)))
  failures.sort((a, b) => a.scenario.seed - b.scenario.seed)
  return { seeds, events, failures, counts, faults, longestMs }
}

async function work(errand: () => Errand | undefined, take: (outcome: Came) => void): Promise<void> {
  const worker = fork(TYPESCRIPT, [WORKER], { execArgv: QUICK, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  if (worker.pid !== undefined) setPriority(worker.pid, NICENESS)
  let isDone = false
  worker.on('message', (report: Report) => {
    if (report.type === 'seed') return take(report.outcome)
    const todo = errand()
    isDone = todo === undefined
    if (todo === undefined) worker.disconnect()
    else worker.send(todo)
  })
  await once(worker, 'exit')
  if (!isDone)
    throw new Error('a process of the campaign died: its seed ends the process of a volunteer or coordinator')
}

/** What broke, how to see it again, and the end of its story. */
export async function explain({ scenario, violation, faults, ms }: Came, options: GridOptions = {}): Promise<string> {
  const { seed } = scenario
  const { story } = await simulateGrid(seed, options, true)
  return [
    `seed ${seed} breaks ${violation?.invariant} after ${(ms / 1000).toFixed(1)} s: ${violation?.text}`,
    setting(scenario, faults),
    `again, with the whole story: npm run simulate -- --seed ${seed}`,
    ...story.slice(-TOLD_LINES),
  ].join('\n')
}

/** The seed in a few words. */
export function setting({ shape, seats, defect }: GridOutcome['scenario'], faults: readonly string[]): string {
  const { mode, epochs, blocks, batchBlocks, exchange } = shape
  const broken = defect === undefined ? '' : `, seat 0: ${defect}`
  const job = `${epochs} × ${blocks} blocks in batches of ${batchBlocks}, mode ${mode}, exchange ${exchange}`
  return `${seats} members${broken}, ${job}; ${faults.join(', ')}`
}

// `simulate`: grids of what ships on virtual time under random faults (docs/RULES.md). Many seeds, or one with its
// story.
import { ProgressLine } from '@starling-grid/cli'
import { GridError } from '@starling-grid/protocol'
import { Command } from 'commander'
import { campaign, explain, setting } from '../world/campaign.ts'
import { simulateGrid } from '../world/world.ts'

interface Options {
  readonly seed?: string
  readonly seeds: string
  readonly first: string
  readonly json?: boolean
}

export interface SimulateResult {
  readonly seeds: number
  readonly events: number
  /** seeds that break an invariant */
  readonly failed: readonly number[]
  readonly counts: Readonly<Record<string, number>>
  readonly faults: Readonly<Record<string, number>>
  readonly seconds: number
}

export async function simulate(argv: string[]): Promise<number> {
  const program = new Command('starling simulate')
    .description(
      'Trains in simulated grids of the real coordinator and volunteers, under random faults, on virtual time.',
    )
    .option('--seed <n>', 'this one alone, with all that happens in it')
    .option('--seeds <n>', 'how many', '1000')
    .option('--first <n>', 'the first of them', '1')
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { seed, seeds, first, json } = program.opts<Options>()
  if (seed !== undefined) return one(numberOf(seed))
  const result = await many(numberOf(first), numberOf(seeds))
  process.stdout.write(json === true ? `${JSON.stringify(result)}\n` : told(result))
  return result.failed.length === 0 ? 0 : 1
}

/** @throws GridError 'usage' */
function numberOf(text: string): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0) return number
  throw new GridError('usage', `expected a number from 1 on, got "${text}"`)
}

/** Its whole story. */
async function one(seed: number): Promise<number> {
  const { scenario, faults, violation, story, ms, events } = await simulateGrid(seed, {}, true)
  process.stdout.write(`${setting(scenario, faults)}\n${story.join('\n')}\n`)
  const end = violation === undefined ? 'all blocks are trained' : `breaks ${violation.invariant}: ${violation.text}`
  process.stdout.write(`seed ${seed}: ${end}, after ${(ms / 1000).toFixed(1)} s and ${events} events\n`)
  return violation === undefined ? 0 : 1
}

async function many(first: number, seeds: number): Promise<SimulateResult> {
  const line = new ProgressLine()
  const began = performance.now()
  let lived = 0
  const { events, failures, counts, faults } = await campaign({
    first,
    seeds,
    each: ({ scenario, violation }) => {
      lived++
      line.show(`${lived} of ${seeds} seeds`)
      if (violation !== undefined) line.say(`seed ${scenario.seed} breaks ${violation.invariant}`)
    },
  })
  for (const failure of failures.slice(0, 3)) process.stdout.write(`${await explain(failure)}\n\n`)
  return {
    seeds,
    events,
    failed: failures.map(({ scenario }) => scenario.seed),
    counts,
    faults: Object.fromEntries(faults),
    seconds: Math.round((performance.now() - began) / 1000),
  }
}

function told({ seeds, events, failed, counts, faults, seconds }: SimulateResult): string {
  const lists = { ...counts, ...faults }
  const rows = Object.entries(lists).map(([name, count]) => `${name} ${count}`)
  return `${rows.join(', ')}\n${seeds} seeds, ${events} events, ${failed.length} break an invariant; ${seconds} s\n`
}

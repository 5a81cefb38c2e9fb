import { duration, ProgressLine } from '@starling-grid/cli'
// `mutants [AREA]`: breaks one line of production code at a time and says which the tests do not notice. Takes about an
// hour for all of them on two cores, so it is no part of the checks of a change. A test among those sees to it that the
// list still fits.
import { GridError } from '@starling-grid/protocol'
import { Argument, Command } from 'commander'
import { MUTANTS } from '../mutants/list.ts'
import { type Mutant, mutate } from '../mutants/mutant.ts'
import { type TestOutcome, Tree } from '../mutants/tree.ts'

/** Of the mutants, what the tests have to notice. */
const LEAST_RATE = 0.97

interface MutantsOptions {
  readonly only?: string
  readonly json?: boolean
}

interface AreaResult {
  readonly killed: number
  readonly of: number
}

/** A mutant, and the first test that failed with it; `test` lacks where the tests hung or could not begin. */
interface Tried extends Mutant {
  readonly outcome: TestOutcome
  readonly seconds: number
}

export interface MutantsResult {
  readonly mutants: number
  readonly killed: number
  /** killed ÷ mutants */
  readonly rate: number
  readonly areas: Readonly<Record<string, AreaResult>>
  /** those that no test noticed, or that are unfit */
  readonly survivors: readonly Tried[]
  /** what noticed each of the others */
  readonly noticed: readonly Tried[]
  readonly seconds: number
}

export async function mutants(argv: string[]): Promise<number> {
  const areas = [...new Set(MUTANTS.map(({ area }) => area))]
  const program = new Command('starling mutants')
    .description(
      'Breaks one line of production code at a time, in a copy, and runs the tests that have to notice it; ' +
        `fails below ${100 * LEAST_RATE} %.`,
    )
    .addArgument(new Argument('[area]', 'mutants of one part only').choices(areas))
    .option('--only <text>', 'mutants whose file or description holds this text')
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const [area] = program.args
  const { only = '', json } = program.opts<MutantsOptions>()
  const chosen = MUTANTS.filter(
    (one) => (area === undefined || one.area === area) && `${one.file} ${one.breaks}`.includes(only),
  )
  if (chosen.length === 0)
    throw new GridError(
      'usage',
      `expected a mutant of ${area ?? 'any area'} with "${only}", got none; leave --only out`,
    )
  const result = await run(chosen)
  console.log(table(result))
  if (json === true) console.log(JSON.stringify(result))
  return result.rate < LEAST_RATE ? 1 : 0
}

async function run(chosen: readonly Mutant[]): Promise<MutantsResult> {
  const began = performance.now()
  const line = new ProgressLine()
  const tree = await Tree.open()
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      tree.remove()
      process.exit(1)
    })
  try {
    const tried = await tryAll(tree, chosen, line)
    const survivors = tried.filter((one) => !isNoticed(one))
    const noticed = tried.filter(isNoticed)
    const seconds = Math.round((performance.now() - began) / 1000)
    return {
      mutants: chosen.length,
      killed: noticed.length,
      rate: noticed.length / chosen.length,
      areas: byArea(tried),
      survivors,
      noticed,
      seconds,
    }
  } finally {
    tree.remove()
  }
}

async function tryAll(tree: Tree, chosen: readonly Mutant[], line: ProgressLine): Promise<Tried[]> {
  const tried: Tried[] = []
  const began = performance.now()
  for (const [i, mutant] of chosen.entries()) {
    const left = i === 0 ? '' : `, ${duration((((performance.now() - began) / i) * (chosen.length - i)) / 1000)} left`
    line.show(`${i} of ${chosen.length}${left}: ${mutant.breaks}`)
    const one = await tryOne(tree, mutant)
    tried.push(one)
    line.say(said(one))
  }
  return tried
}

function isNoticed({ outcome }: Tried): boolean {
  return outcome.verdict === 'failed' || outcome.verdict === 'hung'
}

function said({ file, breaks, outcome }: Tried): string {
  if (outcome.verdict === 'passed') return `SURVIVED ${file}: ${breaks}`
  return `${outcome.verdict} ${file}: ${breaks}; by ${outcome.file}: ${outcome.test ?? 'no test failed'}`
}

/** Runs the files of each part in the order given; ends at the first test that fails. */
async function tryOne(tree: Tree, mutant: Mutant): Promise<Tried> {
  const began = performance.now()
  const seconds = (): number => Math.round((performance.now() - began) / 1000)
  for (const file of tree.testsOf(mutant.tests)) {
    await tree.requirePassing(file)
    const outcome = await runBroken(tree, mutant, file)
    if (outcome.verdict !== 'passed') return { ...mutant, outcome, seconds: seconds() }
  }
  return { ...mutant, outcome: { verdict: 'passed', said: [] }, seconds: seconds() }
}

async function runBroken(tree: Tree, mutant: Mutant, test: string): Promise<TestOutcome> {
  const source = tree.read(mutant.file)
  tree.write(mutant.file, mutate(mutant, source))
  try {
    return await tree.run(test)
  } finally {
    tree.write(mutant.file, source)
  }
}

function byArea(tried: readonly Tried[]): Record<string, AreaResult> {
  const areas: Record<string, AreaResult> = {}
  for (const one of tried) {
    const { area } = one
    const { killed, of } = areas[area] ?? { killed: 0, of: 0 }
    areas[area] = { killed: killed + (isNoticed(one) ? 1 : 0), of: of + 1 }
  }
  return areas
}

function table({ areas, survivors, killed, mutants: of, rate, seconds }: MutantsResult): string {
  const width = Math.max(...Object.keys(areas).map((name) => name.length))
  const rows = Object.entries(areas).map(
    ([name, one]) => `${name.padEnd(width)}  ${String(one.killed).padStart(3)} of ${one.of}`,
  )
  const left = survivors.map(
    ({ file, breaks, outcome }) => `${outcome.verdict === 'unfit' ? 'unfit' : 'survived'}: ${file}: ${breaks}`,
  )
  return [...rows, ...left, `${killed} of ${of} noticed (${(100 * rate).toFixed(1)} %) in ${duration(seconds)}`].join(
    '\n',
  )
}

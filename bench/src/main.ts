// `bench SUITE`: what we measure, against peers in the same run. Correctness comes first; what cannot be compared is
// named.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describeError, GridError } from '@starling-grid/protocol'
import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { loadWarning, machineText, thisMachine } from './machine.ts'
import { writeReport } from './report.ts'
import { keep } from './results.ts'
import { rowText } from './row-text.ts'
import type { Suite } from './suite.ts'

const SUITES: Readonly<Record<string, () => Promise<Suite>>> = {
  async: async () => (await import('./async.ts')).asyncSuite,
  overlap: async () => (await import('./overlap.ts')).overlapSuite,
  local: async () => (await import('./local.ts')).localSuite,
  newcomer: async () => (await import('./newcomer.ts')).newcomerSuite,
  compression: async () => (await import('./compression.ts')).compressionSuite,
  reduce: async () => (await import('./reduce.ts')).reduceSuite,
  links: async () => (await import('./links.ts')).linksSuite,
  exchange: async () => (await import('./exchange.ts')).exchangeSuite,
  coordinator: async () => (await import('./coordinator.ts')).coordinatorSuite,
  scaling: async () => (await import('./scaling.ts')).scalingSuite,
  'time-to-quality': async () => (await import('./time-to-quality.ts')).timeToQualitySuite,
  plan: async () => (await import('./plan.ts')).planSuite,
  import: async () => (await import('./import.ts')).importSuite,
  kernels: async () => (await import('./kernels.ts')).kernelSuite,
  step: async () => (await import('./step.ts')).stepSuite,
  gpt2: async () => (await import('./gpt2.ts')).gpt2Suite,
  host: async () => (await import('./host.ts')).hostSuite,
  dispatch: async () => (await import('./dispatch.ts')).dispatchSuite,
  gpu: async () => (await import('./gpu.ts')).gpuSuite,
  language: async () => (await import('./language.ts')).languageSuite,
}
const ADAPTERS: readonly (readonly string[])[] = [
  ['--adapter', 'llvmpipe'],
  ['--adapter', 'SwiftShader'],
  ['--in', 'browser'],
  ['--executor', 'wasm'],
  ['--executor', 'wasm', '--in', 'browser'],
]
/** Where `all` runs a suite; the others once. */
const PLACES: Readonly<Record<string, readonly (readonly string[])[]>> = {
  kernels: ADAPTERS,
  step: ADAPTERS,
  dispatch: ADAPTERS,
  gpt2: [['--executor', 'wasm']],
  reduce: [[], ['--in', 'browser']],
}

const FEWEST_ROUNDS_TO_KEEP = 5
const MOST_ROUNDS = 1000
const MOST_EVENTS = 100_000_000
const PROGRAM = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

interface BenchCommandOptions {
  readonly adapter?: string
  readonly executor: 'webgpu' | 'wasm'
  readonly in: 'node' | 'browser'
  readonly rounds: number
  readonly only?: string
  readonly against?: string
  readonly short?: true
  readonly events?: number
  readonly kills?: number
  readonly json?: true
  readonly write?: true
}

async function main(argv: string[]): Promise<number> {
  const program = new Command('starling bench')
    .description(
      'Benchmarks against peers in one run: medians of interleaved rounds. ' +
        '`all` runs every suite wherever it runs; `report` writes bench/results/README.md.',
    )
    .addArgument(new Argument('<suite>', 'what to measure').choices([...Object.keys(SUITES), 'all', 'report']))
    .option('--adapter <text>', "part of the wanted adapter's name")
    .addOption(
      new Option('--executor <kind>', "what computes Starling's rows of kernels, step and dispatch")
        .choices(['webgpu', 'wasm'])
        .default('webgpu'),
    )
    .addOption(new Option('--in <place>', 'where the libraries run').choices(['node', 'browser']).default('node'))
    .option('--rounds <n>', 'interleaved rounds', wholeUpTo(MOST_ROUNDS), FEWEST_ROUNDS_TO_KEEP)
    .option('--only <text>', 'rows whose names contain this, such as "LeNet-5" of step')
    .option('--against <text>', 'peers whose names contain this, such as pytorch (kernels, step)')
    .option('--short', 'sizes that show that rows work, and measure nothing (coordinator, gpu, time-to-quality)')
    .option('--events <n>', 'of the journal that a coordinator opens: 1,000,000 by default', wholeUpTo(MOST_EVENTS))
    .option('--kills <n>', 'coordinators that are killed: 10 by default', wholeUpTo(MOST_ROUNDS))
    .option('--json', 'print one JSON value on the last line of stdout')
    .option('--write', 'keep the rows in bench/results')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const options = program.opts<BenchCommandOptions>()
  const [name = ''] = program.args
  if (options.write && options.rounds < FEWEST_ROUNDS_TO_KEEP)
    throw new GridError(
      'usage',
      `expected at least ${FEWEST_ROUNDS_TO_KEEP} rounds with --write, got fewer; use more, or leave --write out`,
    )
  const part = (['only', 'against', 'short'] as const).find((name) => options[name] !== undefined)
  if (options.write && part !== undefined)
    throw new GridError('usage', `expected a whole suite with --write, got --${part}; leave one of them out`)
  if (name === 'report') return say(writeReport())
  return name === 'all' ? runAll(argv.filter((argument) => argument !== 'all')) : runSuite(name, options)
}

async function runSuite(name: string, options: BenchCommandOptions): Promise<number> {
  const load = SUITES[name]
  if (load === undefined)
    throw new GridError('usage', `expected one of ${Object.keys(SUITES).join(', ')}, got "${name}"`)
  const machine = thisMachine()
  const log = (line: string) => console.error(line)
  log(machineText(machine))
  const warning = loadWarning(machine)
  if (warning) log(warning)
  const suite = await load()
  const known = new Set<string>()
  const rows = await suite({
    adapter: options.adapter,
    executor: options.executor,
    in: options.in,
    rounds: options.rounds,
    only: options.only,
    against: options.against,
    onRow: (row) => known.add(row),
    short: options.short,
    events: options.events,
    kills: options.kills,
    log,
  })
  if (rows.length === 0 && known.size > 0)
    throw new GridError(
      'usage',
      `expected part of a row's name with --only, got "${options.only}"; the rows are ${[...known].join(', ')}`,
    )
  for (const row of rows) (options.json ? console.error : console.log)(rowText(row))
  if (options.write)
    keep(name, { date: new Date().toISOString().slice(0, 10), machine, in: options.in, rounds: options.rounds, rows })
  if (options.json) console.log(JSON.stringify({ machine, rows }))
  return 0
}

/** One after the other, each in a process of its own, because a process sees one adapter. */
function runAll(flags: readonly string[]): number {
  const failed: string[] = []
  const runs = Object.keys(SUITES).flatMap((suite) =>
    (PLACES[suite] ?? [[]]).map((where) => ['bench', suite, ...where, ...flags]),
  )
  for (const run of runs) {
    console.error(`\nstarling ${run.join(' ')}`)
    if (spawnSync(process.execPath, [PROGRAM, ...run], { stdio: 'inherit' }).status !== 0) failed.push(run.join(' '))
  }
  for (const command of failed) console.error(`failed: ${command}`)
  return failed.length === 0 ? 0 : 1
}

function wholeUpTo(most: number): (text: string) => number {
  return (text) => {
    const count = Number(text)
    if (!Number.isInteger(count) || count < 1 || count > most)
      throw new InvalidArgumentError(`expected a whole number from 1 to ${most}`)
    return count
  }
}

function say(line: string): number {
  console.log(line)
  return 0
}

try {
  process.exit(await main(process.argv.slice(2)))
} catch (error) {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : 2)
  console.error(describeError(error))
  process.exit(error instanceof GridError && error.code === 'usage' ? 2 : 1)
}

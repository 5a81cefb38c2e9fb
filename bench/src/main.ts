// `bench SUITE`: what we measure, against peers in the same run. Correctness comes first; a suite that is not built says so.
import { describeError, GridError } from '@starling-grid/protocol'
import { Argument, Command, CommanderError } from 'commander'
import type { BenchRow } from './row.ts'

const SUITES: Readonly<Record<string, () => Promise<(adapter: string | undefined) => Promise<BenchRow[]>>>> = {
  async: async () => (await import('./async.ts')).asyncSuite,
  step: async () => (await import('./step.ts')).stepSuite,
}

async function main(argv: string[]): Promise<number> {
  const program = new Command('starling bench')
    .description('Benchmarks against peers in one run: medians of interleaved rounds.')
    .addArgument(new Argument('<suite>', 'what to measure').choices(Object.keys(SUITES)))
    .option('--adapter <text>', "part of the wanted adapter's name")
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { adapter, json } = program.opts<{ adapter?: string; json?: boolean }>()
  const load = SUITES[program.args[0] ?? '']
  if (load === undefined) throw new GridError('usage', `no suite "${program.args[0]}"`)
  const rows = await (await load())(adapter)
  for (const row of rows) (json === true ? console.error : console.log)(asText(row))
  if (json === true) console.log(JSON.stringify({ rows }))
  return 0
}

function asText({ name, adapter, ours, min, max, unit, peers, ratio }: BenchRow): string {
  const others = Object.entries(peers).map(([peer, value]) => `${peer} ${Number(value.toPrecision(3))} (${ratio[peer]}×)`)
  return `${name.padEnd(20)} ${String(ours).padStart(8)} ${unit} [${min} … ${max}] on ${adapter}; ${others.join(', ')}`
}

try {
  process.exit(await main(process.argv.slice(2)))
} catch (error) {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : 2)
  console.error(describeError(error))
  process.exit(1)
}

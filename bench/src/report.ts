// `bench report`: the tables of bench/results/README.md, made from the kept results. Rows that lose stay in them.
import { readFileSync, writeFileSync } from 'node:fs'
import { machineText } from './machine.ts'
import { type KeptRun, keptRuns, keptSuites } from './results.ts'
import type { BenchRow } from './row.ts'

const PAGE = new URL('../results/README.md', import.meta.url)
/** Digits of a figure in the tables: runs differ by more. */
const DIGITS = 3
const BEGIN = '<!-- tables: `npm run bench -- report` writes what follows -->'

export function writeReport(): string {
  const [text = ''] = readFileSync(PAGE, 'utf8').split(BEGIN)
  const suites = keptSuites()
  writeFileSync(PAGE, `${text}${BEGIN}\n\n${suites.map((suite) => suiteText(suite, keptRuns(suite))).join('\n')}`)
  return `bench/results/README.md: ${suites.join(', ') || 'no results yet'}`
}

/** The newest row of each name, adapter and place. */
export function suiteText(suite: string, runs: readonly KeptRun[]): string {
  const newest = new Map<string, { run: KeptRun; row: BenchRow }>()
  for (const run of runs)
    for (const row of run.rows) newest.set(`${row.name} | ${row.adapter} | ${run.in}`, { run, row })
  const kept = [...newest.values()].sort(
    (a, b) => compareText(a.row.name, b.row.name) || compareText(a.row.adapter, b.row.adapter),
  )
  const used = [...new Set(kept.map(({ run }) => run))]
  return [
    `## ${suite}`,
    '',
    '| row | adapter | Starling | min … max | against | wanted | first run |',
    '|---|---|---|---|---|---|---|',
    ...kept.map(({ run, row }) => rowText(run, row)),
    '',
    ...used.map((run) => `- ${run.date}, in ${run.in}, ${run.rounds} rounds: ${machineText(run.machine)}`),
    ...missingText(kept.map(({ row }) => row)),
    '',
  ].join('\n')
}

function rowText(run: KeptRun, row: BenchRow): string {
  const { name, adapter, ours, unit, min, max, peers, ratio, firstRunMs = {}, versions = {} } = row
  const against = Object.entries(peers).map(([peer, value]) =>
    `${peer} ${versions[peer] ?? ''} ${rounded(value)} (**${rounded(ratio[peer] ?? 0)}×**)`.replaceAll('  ', ' '),
  )
  const first = firstRunMs['starling'] === undefined ? '' : `${firstRunMs['starling']} ms`
  const unitText = row.better === 'less' ? `${unit}, less is better` : unit
  return (
    `| ${name} | ${adapter}, ${run.in === 'browser' ? 'Chromium' : 'Node'} | ${rounded(ours)} ${unitText} | ` +
    `${rounded(min)} … ${rounded(max)} | ${against.join('<br>')} | ${reachText(row)} | ${first} |`
  )
}

/** Three digits, or all of an integer. */
const rounded = (value: number): string =>
  String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(DIGITS)))

/** Whether the row reaches its target. */
export function reachText({ reach, ratio }: BenchRow): string {
  if (reach === undefined) return ''
  const [wanted, got] = [reach.ratio, ratio[reach.peer] ?? 0]
  return (
    `${rounded(wanted)}× ${reach.peer}: ` +
    `${got >= wanted ? 'reached' : `**missed** by ${((1 - got / wanted) * 100).toPrecision(2)} %`}`
  )
}

function missingText(rows: readonly BenchRow[]): string[] {
  const reasons = new Set(
    rows.flatMap(({ name, missing = {} }) =>
      Object.entries(missing).map(([peer, reason]) => `- ${name}: without ${peer}, because ${reason}`),
    ),
  )
  return reasons.size === 0 ? [] : ['', 'Not compared:', '', ...reasons]
}

function compareText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

// `chaos SCENARIO`: a real run whose processes are killed, or whose links are cut, at random instants; the chain is audited at
// the end.
import { GridError, random32, type RunView, type StepRecord } from '@starling-grid/protocol'
import { Argument, Command } from 'commander'
import { wholeNumber } from '../arguments.ts'
import { type Audit, auditChain } from '../audit.ts'
import { cutLink, PARTITIONED } from '../cut-link.ts'
import { demoJob } from '../demo-job.ts'
import { Grid, type VolunteerOptions } from '../grid.ts'
import { ProgressLine } from '../progress-line.ts'
import type { Watch } from '../watch.ts'

interface Options {
  readonly seed: number
  readonly faults?: number
  readonly volunteers: number
  readonly epochs?: number
  readonly executor: 'webgpu' | 'reference'
  readonly json?: boolean
}

type Strike = (grid: Grid, random: () => number) => Promise<void>

interface Fault {
  /** ms of the clock */
  readonly at: number
  /** that was running when it struck */
  readonly generation: number
}

interface Scenario {
  readonly does: string
  readonly strike: Strike
  /** what volunteers are started with */
  readonly volunteer?: Pick<VolunteerOptions, 'entry' | 'env'>
  /** when the command line names none; a training that is long enough for them */
  readonly faults: number
  readonly epochs: number
}

/** scenario → what one fault does */
const SCENARIOS: Readonly<Record<string, Scenario>> = {
  'kill-volunteers': { does: 'SIGKILL a random volunteer, and start another', strike: killVolunteer, faults: 4, epochs: 4 },
  'kill-coordinator': { does: 'SIGKILL the coordinator, and start it again', strike: killCoordinator, faults: 4, epochs: 4 },
  // Each takes a minute or so: silence, a dial in vain, the relay, and then the way back to the direct link.
  partition: { does: 'cut the link between two volunteers, and restore it', strike: cutLink, volunteer: PARTITIONED, faults: 2, epochs: 8 },
}

export interface ChaosResult extends Audit {
  readonly faults: number
  readonly replicasIdentical: boolean
  readonly recoverySeconds: { readonly p50: number; readonly max: number }
  /** committed samples per second with faults, over the rate before the first fault */
  readonly goodput: number
}

export async function chaos(argv: string[]): Promise<number> {
  const program = new Command('starling chaos')
    .description(`Trains while things break, then audits the committed history.\n\n${Object.entries(SCENARIOS).map(([name, { does }]) => `  ${name}: ${does}`).join('\n')}`)
    .addArgument(new Argument('<scenario>', 'what breaks').choices(Object.keys(SCENARIOS)))
    .option('--seed <n>', 'of the faults and of the run', wholeNumber(0), 1)
    .option('--faults <n>', 'how many; 2 partitions or 4 kills otherwise', wholeNumber(1))
    .option('--volunteers <n>', 'headless volunteers', wholeNumber(2), 3)
    .option('--epochs <n>', 'times over the digits; enough for the faults otherwise', wholeNumber(1))
    .option('--executor <kind>', 'what computes: webgpu or reference', 'webgpu')
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const scenario = SCENARIOS[program.args[0] ?? '']
  if (scenario === undefined) throw new GridError('usage', `no scenario "${program.args[0]}"`)
  const options = program.opts<Options>()
  const result = await runScenario(scenario, options)
  if (options.json === true) console.log(JSON.stringify(result))
  return result.lost === 0 && result.duplicated === 0 && result.replicasIdentical ? 0 : 1
}

async function runScenario(scenario: Scenario, { seed, volunteers, executor, faults = scenario.faults, epochs = scenario.epochs }: Options): Promise<ChaosResult> {
  const { strike } = scenario
  const line = new ProgressLine()
  const random = random32(seed)
  const grid = await Grid.start()
  try {
    const job = await grid.submit(demoJob({ epochs, seed, mode: 'ring', minVolunteers: volunteers }))
    for (let i = 0; i < volunteers; i++) grid.addVolunteer({ executor, ...scenario.volunteer })
    grid.watch.onChange(() => line.show(`step ${grid.watch.run?.version.v ?? 0}: ${grid.watch.run?.reason ?? ''}`))
    const calm = await calmRate(grid)
    const struck: Fault[] = []
    const began = performance.now()
    const before = grid.watch.run?.samplesCommitted ?? 0
    for (let i = 0; i < faults; i++) struck.push(await oneFault(grid, { strike, random, number: i + 1, line }))
    const run = await grid.watch.waitFor('the end of the training', ({ run }) => run?.phase === 'finished' && run, 60 * 60 * 1000)
    const rate = ((run.samplesCommitted - before) * 1000) / (performance.now() - began)
    const records = await grid.records(job)
    const recoveries = struck.map((fault) => secondsToRecover(fault, records, grid.watch.steps))
    const audit = auditChain(records, run.job.blocksPerEpoch * run.job.epochs)
    const result = { faults, ...audit, replicasIdentical: run.checkpoint !== null && run.checkpoint.agreeing === run.checkpoint.members, recoverySeconds: percentiles(recoveries), goodput: Math.round((100 * rate) / calm) / 100 }
    line.say(`${faults} faults: ${audit.blocksCommitted} of ${audit.blocksExpected} blocks committed, ${audit.lost} lost, ${audit.duplicated} duplicated; recovery ${result.recoverySeconds.p50} s (median), ${result.recoverySeconds.max} s at most; goodput ${result.goodput}`)
    return result
  } finally {
    await grid.stop()
  }
}

/** Samples per second of the first steps, before anything breaks. */
async function calmRate({ watch }: Grid): Promise<number> {
  const first = await watch.waitFor('the first steps', ({ steps }) => steps.length >= 3 && steps[2])
  const last = await watch.waitFor('some calm steps', ({ steps }) => steps.length >= 20 && steps[19])
  const samples = watch.steps.slice(3, 20).reduce((sum, step) => sum + step.samples, 0)
  return (samples * 1000) / Math.max(last.at - first.at, 1)
}

/** Who kills the only holder of a version tests the wait for its return (R6, 60 s), which the simulation does. */
const SURVIVABLE = 2

function ringSize({ members }: RunView): number {
  return members.filter(({ position }) => position !== null).length
}

/** Strikes at a random instant. */
async function oneFault(grid: Grid, { strike, random, number, line }: { readonly strike: Strike; readonly random: () => number; readonly number: number; readonly line: ProgressLine }): Promise<Fault> {
  const { watch } = grid
  const target = (watch.run?.version.v ?? 0) + 3 + (random() % 12)
  const run = await watch.waitFor('the next instant for a fault', ({ run }) => run !== undefined && (run.phase === 'finished' || (run.version.v >= target && ringSize(run) >= SURVIVABLE)) && run)
  if (run.phase === 'finished') throw new GridError('usage', `the run ended before fault ${number}; ask for more epochs or fewer faults`)
  await new Promise((resolve) => setTimeout(resolve, random() % 200)) // within a step, not at its border
  const fault = { at: Date.now(), generation: watch.run?.generation ?? 0 }
  line.say(`fault ${number} at version ${watch.run?.version.v ?? 0}`)
  await strike(grid, random)
  await watch.waitFor(`the generation after fault ${number}`, ({ run, steps }) => run !== undefined && run.generation > fault.generation && (steps.at(-1)?.at ?? 0) > fault.at && (run.phase === 'ring' || run.phase === 'finished'))
  return fault
}

/** From the fault to the first step that a later generation committed. */
function secondsToRecover(fault: Fault, records: readonly StepRecord[], steps: Watch['steps']): number {
  const next = records.find((record) => record.gen > fault.generation)
  const at = steps.find((step) => step.v === next?.v)?.at
  return at === undefined ? Number.NaN : (at - fault.at) / 1000
}

async function killVolunteer(grid: Grid, random: () => number): Promise<void> {
  // One that a step depends on: a newcomer that still waits would be missed by nobody.
  const working = new Set(grid.watch.run?.members.filter((member) => member.position !== null).map((member) => member.name))
  const alive = grid.volunteers.filter((child) => child.alive() && working.has(child.name))
  const victim = alive[random() % alive.length]
  victim?.kill('SIGKILL')
  await victim?.ended
  grid.addVolunteer()
}

async function killCoordinator(grid: Grid): Promise<void> {
  await grid.killCoordinator()
  await grid.restartCoordinator()
}

function percentiles(values: readonly number[]): { readonly p50: number; readonly max: number } {
  const sorted = [...values].sort((a, b) => a - b)
  const round = (value: number | undefined): number => Math.round(100 * (value ?? 0)) / 100
  return { p50: round(sorted[Math.floor(sorted.length / 2)]), max: round(sorted.at(-1)) }
}

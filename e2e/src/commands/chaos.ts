// `chaos SCENARIO`: a real run while things break at random instants; the chain is audited at the end.
import { appendFileSync } from 'node:fs'
import { demoJob, duration, Grid, ProgressLine, wholeNumber } from '@starling-grid/cli'
import { auditSteps, auditText, type StepsAudited } from '@starling-grid/cli/audit-steps'
import { GridError, type JobSpec, random32, type RunView } from '@starling-grid/protocol'
import { Argument, Command, Option } from 'commander'
import { type ChainAudit, auditChain } from '../audit.ts'
import { cutLink, PARTITIONED } from '../chaos/cut-link.ts'
import { within } from '../chaos/deadline.ts'
import { everything, type EverythingResult } from '../chaos/everything.ts'
import { ATTACKS, hostile } from '../chaos/hostile.ts'
import { GROUPED, killCoordinator, killGroup, killVolunteer } from '../chaos/kills.ts'
import {
  type Attack,
  type InjectedFault,
  type Percentiles,
  percentiles,
  rounded,
  type Scenario,
  secondsToRecover,
  type Slowness,
  type InjectionResult,
} from '../chaos/scenario.ts'
import { slowMember } from '../chaos/slow-member.ts'

interface ChaosOptions {
  readonly seed: number
  readonly faults?: number
  readonly kills?: number
  readonly volunteers?: number
  readonly epochs?: number
  readonly minutes?: number
  readonly executor: 'webgpu' | 'reference'
  readonly exchange: NonNullable<JobSpec['exchange']>
  readonly log?: string
  readonly audit?: boolean
  readonly json?: boolean
}

/** All faults at random on one grid; it measures other things than the scenarios do, and has a result of its own. */
const EVERYTHING = 'everything'
const EVERYTHING_DOES =
  'kills, takeovers, lost answers, damaged checkpoints, slow uploads and job switches at random, for --minutes'

/** scenario → what one fault does */
const SCENARIOS: Readonly<Record<string, Scenario>> = {
  'kill-volunteers': { does: 'SIGKILL a random volunteer, and start another', strike: killVolunteer, faults: 4 },
  'kill-coordinator': { does: 'SIGKILL the coordinator, and start it again', strike: killCoordinator, faults: 4 },
  'kill-group': {
    does: 'SIGKILL a third of the replica groups at once in the middle of a round, and start others',
    strike: killGroup,
    job: GROUPED,
    volunteers: 6,
    faults: 2,
  },
  // Each takes a minute or so: silence, a dial in vain, the relay, and then the way back to the direct link.
  partition: {
    does: 'cut the link between two volunteers, and restore it',
    strike: cutLink,
    volunteer: PARTITIONED,
    faults: 2,
  },
  'slow-member': {
    does: 'slow a volunteer down, put it to sleep, wake it up; then SIGKILL one',
    strike: slowMember,
    faults: 2,
  },
  hostile: {
    does: 'let a volunteer in that attacks the run, a different way each time',
    strike: hostile,
    faults: ATTACKS,
  },
}
/**
 * The coordinator has its own machine wherever it matters; here it would start in the time that three volunteers leave
 * it.
 */
const VOLUNTEER_NICENESS = 5
/** When neither the command line nor the scenario says how many. */
const VOLUNTEERS = 3
/** Far more than any scenario takes: the run is told to end with its epoch when all faults are struck. */
const ENDLESS_EPOCHS = 1000
/**
 * Minutes that a scenario takes at most on two cores: the slowest, `hostile`, takes three of them on an idle machine.
 */
const LONGEST_MINUTES = 5
/** … and of `everything`, which is of any length. */
const EVERYTHING_MINUTES = 10
/** ms between two lines of progress, also while nothing happens */
const PROGRESS_MS = 1000

export interface ChaosResult extends ChainAudit, Partial<StepsAudited> {
  readonly faults: number
  readonly replicasIdentical: boolean
  /** from a fault to the next committed step; of attacks, the longest time between two steps */
  readonly recoverySeconds: Percentiles
  /** the same for each kind of fault, where there are several */
  readonly recoverySecondsAfter?: Readonly<Record<string, Percentiles>>
  /** committed samples per second with faults, over the rate before the first fault */
  readonly goodput: number
  readonly slowness?: readonly Slowness[]
  readonly attacks?: readonly Attack[]
}

export async function chaos(argv: string[]): Promise<number> {
  const program = new Command('starling chaos')
    .description(
      `Trains while things break, then audits the committed history.\n\n${Object.entries(SCENARIOS)
        .map(([name, { does }]) => `  ${name}: ${does}`)
        .join('\n')}\n  ${EVERYTHING}: ${EVERYTHING_DOES}`,
    )
    .addArgument(new Argument('<scenario>', 'what breaks').choices([...Object.keys(SCENARIOS), EVERYTHING]))
    .option('--seed <n>', 'of the faults and of the run', wholeNumber(0), 1)
    .option('--faults <n>', `how many; 2 partitions or sleepers, 4 kills, ${ATTACKS} attacks otherwise`, wholeNumber(1))
    .addOption(new Option('--kills <n>', 'the same as --faults').argParser(wholeNumber(1)))
    .option('--volunteers <n>', `headless volunteers; ${VOLUNTEERS}, of kill-group 6`, wholeNumber(2))
    .option('--epochs <n>', 'times over the digits; until all faults are struck otherwise', wholeNumber(1))
    .option('--executor <kind>', 'what computes: webgpu or reference', 'webgpu')
    .addOption(
      new Option(
        '--exchange <way>',
        'gradients travel around the ring, from each to each, or as the run finds cheaper; ' +
          'who sends wrong sums is named in the ring only',
      )
        .choices(['ring', 'direct', 'auto'])
        .default('ring'),
    )
    .option('--log <file>', 'append a line of JSON for every fault, and one for the run')
    .option(
      '--minutes <n>',
      `of faults, in the scenario ${EVERYTHING} (${EVERYTHING_MINUTES}); ` +
        `after which another fails and says what it waits for (${LONGEST_MINUTES})`,
      wholeNumber(1),
    )
    .option(
      '--audit',
      'at the end, compute the gradient of every committed step once more from its record, and compare',
    )
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const name = program.args[0] ?? ''
  const options = program.opts<ChaosOptions>()
  if (name === EVERYTHING) return everythingBreaks(options)
  const scenario = SCENARIOS[name]
  if (scenario === undefined)
    throw new GridError('usage', `expected one of ${[...Object.keys(SCENARIOS), EVERYTHING].join(', ')}, got "${name}"`)
  const request = requestOf(options, scenario)
  const result = await runScenario(name, scenario, request)
  if (options.json === true) console.log(JSON.stringify(result))
  return result.faults === request.faults &&
    result.lost === 0 &&
    result.duplicated === 0 &&
    result.replicasIdentical &&
    (result.auditFailed ?? 0) === 0 &&
    result.auditReached !== false
    ? 0
    : 1
}

async function everythingBreaks({
  minutes = EVERYTHING_MINUTES,
  seed,
  volunteers = VOLUNTEERS,
  executor,
  audit = false,
  json,
}: ChaosOptions): Promise<number> {
  const line = new ProgressLine()
  const result = await everything({
    minutes,
    seed,
    volunteers,
    executor,
    audit,
    random: random32(seed),
    say: (text) => line.say(text),
    show: (text) => line.show(text),
  })
  const { lost, duplicated, jobs, jobsEnded, volunteersEnded, recoverySeconds } = result
  line.say(
    `${jobsEnded} of ${jobs} jobs ended; ${result.blocksCommitted} of ${result.blocksExpected} blocks committed, ` +
      `${lost} lost, ${duplicated} duplicated; ${volunteersEnded.length} volunteers ended by themselves; ` +
      `recovery ${recoverySeconds.p50} s (median), ${recoverySeconds.max} s at most`,
  )
  if (json === true) console.log(JSON.stringify(result))
  return survived(result) ? 0 : 1
}

function survived({
  lost,
  duplicated,
  replicasIdentical,
  jobs,
  jobsEnded,
  volunteersEnded,
  auditFailed = 0,
  auditReached = null,
}: EverythingResult): boolean {
  return (
    auditFailed === 0 &&
    auditReached !== false &&
    lost === 0 &&
    duplicated === 0 &&
    replicasIdentical &&
    jobsEnded === jobs &&
    volunteersEnded.length === 0
  )
}

interface ChaosRequest extends ChaosOptions {
  readonly faults: number
  readonly minutes: number
  readonly volunteers: number
}

function requestOf(options: ChaosOptions, scenario: Scenario): ChaosRequest {
  return {
    ...options,
    faults: options.faults ?? options.kills ?? scenario.faults,
    minutes: options.minutes ?? LONGEST_MINUTES,
    volunteers: options.volunteers ?? scenario.volunteers ?? VOLUNTEERS,
  }
}

async function runScenario(name: string, scenario: Scenario, options: ChaosRequest): Promise<ChaosResult> {
  const line = new ProgressLine()
  const grid = await Grid.start({ volunteerNiceness: VOLUNTEER_NICENESS, audited: options.audit === true })
  try {
    grid.watch.limitMs = 60_000 * options.minutes
    return await within(60_000 * options.minutes, grid.watch, struckRun({ name, scenario, grid, line }, options))
  } finally {
    await grid.stop()
  }
}

interface Stage {
  readonly name: string
  readonly scenario: Scenario
  readonly grid: Grid
  readonly line: ProgressLine
}

async function audited({ grid, line }: Stage, job: string, executor: ChaosOptions['executor']): Promise<StepsAudited> {
  const found = await auditSteps(grid, job, { executor, say: (text) => line.say(text) })
  line.say(`audit: ${auditText(found)}`)
  return found
}

async function struckRun({ name, scenario, grid, line }: Stage, options: ChaosRequest): Promise<ChaosResult> {
  const { seed, volunteers, executor, exchange, faults } = options
  const job = await grid.submit({
    ...demoJob({ stop: { epochs: options.epochs ?? ENDLESS_EPOCHS }, seed, mode: 'ring', minVolunteers: volunteers }),
    exchange,
    ...scenario.job,
  })
  for (let i = 0; i < volunteers; i++) grid.addVolunteer({ executor, ...scenario.volunteer })
  const struck: InjectionResult[] = []
  const began = { at: performance.now(), samples: 0 }
  const show = (): void =>
    line.show(progress(grid, { struck: struck.length, faults, seconds: (performance.now() - began.at) / 1000 }))
  const timer = setInterval(show, PROGRESS_MS)
  try {
    const calm = await calmRate(grid)
    const random = random32(seed)
    const recoveries: Recovery[] = []
    /** One fault late: the first step of the generation after it is committed by then. */
    const noteRecovery = async (one: InjectionResult | undefined): Promise<void> => {
      const found = one === undefined ? [] : await recoveriesOf(grid, job, one)
      recoveries.push(...found)
      if (options.log !== undefined) keep(options.log, found.map(recoveryRow))
    }
    Object.assign(began, { at: performance.now(), samples: grid.watch.run?.samplesCommitted ?? 0 })
    while (struck.length < faults && (await nextInstant(grid, random))) {
      line.say(`fault ${struck.length + 1} of ${faults} at version ${grid.watch.run?.version.v}`)
      struck.push(
        await scenario.strike(grid, { number: struck.length, executor, random, say: (text) => line.say(text) }),
      )
      await noteRecovery(struck.at(-2))
    }
    if (struck.length < faults)
      line.say(`the run ended after ${struck.length} of ${faults} faults; leave --epochs out, or ask for more`)
    if (struck.length === 0)
      throw new GridError('usage', 'expected a fault before the end of the run, got none; ask for more epochs')
    if (options.epochs === undefined) await grid.endWithEpoch(job)
    const run = await grid.watch.waitFor('the end of the training', ({ run }) => run?.phase === 'finished' && run)
    await noteRecovery(struck.at(-1))
    const rate = ((run.samplesCommitted - began.samples) * 1000) / (performance.now() - began.at)
    const audit = auditChain(await grid.records(job), run.job.blocksPerEpoch * (run.job.epochs ?? 0))
    const result = {
      faults: struck.length,
      ...audit,
      replicasIdentical: run.checkpoint !== null && run.checkpoint.agreeing === run.checkpoint.members,
      ...summary(recoveries, struck),
      goodput: rounded(rate / calm),
      ...(options.audit === true ? await audited({ name, scenario, grid, line }, job, executor) : {}),
    }
    if (options.log !== undefined) keep(options.log, [{ scenario: name, seed, volunteers, ...result }])
    line.say(resultText(result))
    return result
  } finally {
    clearInterval(timer)
  }
}

function recoveryRow({ kind, at, generation, seconds }: Recovery): object {
  return { fault: kind, at: new Date(at).toISOString(), generation, seconds: rounded(seconds) }
}

function resultText({ faults, recoverySeconds, goodput, ...audit }: ChaosResult): string {
  return (
    `${faults} faults: ${audit.blocksCommitted} of ${audit.blocksExpected} blocks committed, ` +
    `${audit.lost} lost, ${audit.duplicated} duplicated; recovery ${recoverySeconds.p50} s (median), ` +
    `${recoverySeconds.max} s at most; goodput ${goodput}`
  )
}

/**
 * How far it is, and what it waits for. How long the faults that are left will take, by those before.
 */
function progress(
  { watch }: Grid,
  { struck, faults, seconds }: { readonly struck: number; readonly faults: number; readonly seconds: number },
): string {
  const left = struck === 0 ? '' : `, about ${duration((seconds / struck) * (faults - struck))} left`
  return (
    `${struck} of ${faults} faults${left}; step ${watch.run?.version.v ?? 0}: ${watch.run?.reason ?? ''}; ` +
    `waiting for ${watch.waitingFor}`
  )
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

/** Of a ring, or in rounds of groups. */
function atWork({ phase, members }: RunView): number {
  return phase === 'async' ? members.length : members.filter(({ rank }) => rank !== null).length
}

/** Waits for a random instant of a run that can lose a member; false: the run ended before. */
async function nextInstant({ watch }: Grid, random: () => number): Promise<boolean> {
  const target = (watch.run?.version.v ?? 0) + 3 + (random() % 12)
  await watch.waitFor(
    'the next instant for a fault',
    ({ run }) =>
      run !== undefined && (run.phase === 'finished' || (run.version.v >= target && atWork(run) >= SURVIVABLE)),
  )
  await new Promise((resolve) => setTimeout(resolve, random() % 200)) // within a step, not at its border
  return watch.run?.phase !== 'finished'
}

interface Recovery extends InjectedFault {
  readonly seconds: number
}

async function recoveriesOf(grid: Grid, job: string, { faults }: InjectionResult): Promise<Recovery[]> {
  const records = await grid.records(job)
  return faults.map((fault) => ({ ...fault, seconds: secondsToRecover(fault, records, grid.watch.steps) }))
}

function summary(
  recoveries: readonly Recovery[],
  struck: readonly InjectionResult[],
): Pick<ChaosResult, 'recoverySeconds' | 'recoverySecondsAfter' | 'slowness' | 'attacks'> {
  const kinds = [...new Set(recoveries.map(({ kind }) => kind))]
  const of = (kind: string): Percentiles =>
    percentiles(recoveries.filter((one) => one.kind === kind).map(({ seconds }) => seconds))
  const slowness = struck.flatMap((one) => one.slowness ?? [])
  const attacks = struck.flatMap((one) => one.attack ?? [])
  return {
    recoverySeconds: percentiles([...recoveries.map(({ seconds }) => seconds), ...attacks.map(({ pause }) => pause)]),
    ...(kinds.length > 1 ? { recoverySecondsAfter: Object.fromEntries(kinds.map((kind) => [kind, of(kind)])) } : {}),
    ...(slowness.length > 0 ? { slowness } : {}),
    ...(attacks.length > 0 ? { attacks } : {}),
  }
}

function keep(file: string, entries: readonly object[]): void {
  appendFileSync(file, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''))
}

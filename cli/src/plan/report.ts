// A plan as people read it: the job as its file says beside the best that was tried, then what was assumed.
import type { JobSpec } from '@starling-grid/protocol'
import { EXCHANGES, requirementsOf, requiresText } from '@starling-grid/protocol'
import { duration } from '../terminal/progress-line.ts'
import type { Crowd } from './crowd.ts'
import type { JobPlan } from './plan.ts'
import type { Bound, PlannedRun } from './planned-run.ts'

export interface PlanContext {
  readonly spec: JobSpec
  readonly crowd: Crowd
  readonly churnPerMinute: number
  /** named by the caller */
  readonly steps?: number
}

const BOUNDS: Readonly<Record<Bound, string>> = {
  compute: 'computing',
  line: 'bytes on the line',
  latency: 'latency of the line',
}
/** Below this part of the machines a reader asks where the others are. */
const MOST_TAKE_PART = 0.8
const MBIT_BYTES = 125_000
const HOUR = 3600

export function planReport(plan: JobPlan, context: PlanContext): string {
  const { own, best } = plan
  const isSame = own === best
  const columns: readonly (readonly [string, PlannedRun])[] = isSame
    ? [['as the file says', own]]
    : [
        ['as the file says', own],
        ['best of those tried', best],
      ]
  const rows = [
    ['', ...columns.map(([title]) => title)],
    ...ROWS.map(([name, cell]) => [name, ...columns.map(([, run]) => cell(run))]),
  ]
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)))
  const table = rows.map((row) =>
    row
      .map((text, i) => text.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd(),
  )
  const waiting = own.members < MOST_TAKE_PART * own.volunteers && own.mode !== 'async' ? [waitingText(own)] : []
  const verdict = isSame ? [`Nothing else that was tried is faster by enough (${plan.tried.length - 1} tried).`] : []
  return [
    `Plan of "${context.spec.name}": ${whole(plan.samples)} samples`,
    ...table,
    ...verdict,
    ...waiting,
    '',
    'Assumed',
    ...assumptions(plan, context).map((line) => `  ${line}`),
  ].join('\n')
}

const ROWS: readonly (readonly [string, (run: PlannedRun) => string])[] = [
  ['time', ({ seconds }) => time(seconds)],
  ['steps', ({ steps }) => whole(steps)],
  ['samples/s', ({ samplesPerSecond }) => whole(samplesPerSecond)],
  [
    'batch',
    ({ batchSamples, batchBlocks, blockSamples }) => {
      const times = batchSamples / (batchBlocks * blockSamples)
      const members = times === 1 ? '' : `${rate(times)} members × `
      return `${whole(batchSamples)} (${members}${batchBlocks} × ${blockSamples})`
    },
  ],
  ['learning rate', ({ learningRate }) => rate(learningRate)],
  ['volunteers', ({ volunteers }) => `${volunteers} at most`],
  ['encoding', ({ encoding }) => encoding],
  ['exchange', exchangeText],
  ['up, each home', ({ bytesUp }) => `at most ${bytes(bytesUp)}`],
  ['down, each home', ({ bytesDown }) => `at most ${bytes(bytesDown)}`],
  ['bound by', boundText],
]

function exchangeText({ exchange, exchangeTaken, members, mode }: PlannedRun): string {
  if (mode === 'async') return 'parameter server'
  const way = exchangeTaken === 'ring' ? `ring of ${members}` : `direct exchange of ${members}`
  return exchange === 'auto' ? `auto: ${way}` : way
}

function boundText({ bound, stepMs }: PlannedRun): string {
  const all = stepMs.compute + stepMs.line + stepMs.latency
  return `${BOUNDS[bound]}, ${Math.round((100 * stepMs[bound]) / all)} % of ${whole(all)} ms a step`
}

function waitingText({ members, volunteers }: PlannedRun): string {
  return (
    `As the file says, ${members} of ${volunteers} volunteers train on the average. The others wait: fewer make a ` +
    'faster step over these lines, or newcomers cannot follow the steps of those at work.'
  )
}

/** Each that changes the answer. */
function assumptions(plan: JobPlan, context: PlanContext): string[] {
  const { speeds, sampleFlops, modelled, own, best, unfit } = plan
  const { crowd, churnPerMinute, spec, steps } = context
  const { links, groups, isLineGiven } = crowd
  const count = groups.reduce((sum, group) => sum + group.count, 0)
  const unfitCount = unfit.reduce((sum, group) => sum + group.count, 0)
  return [
    ...groups.map((group, i) => `${machineText(group, speeds[i] ?? 0, sampleFlops)}`),
    `${isLineGiven ? '' : 'no line is named: '}${links.name}: ${mbit(links.up)} Mbit/s up, ${mbit(links.down)} down, ` +
      `${links.latencyMs} ms to another volunteer`,
    churnPerMinute === 0
      ? 'all stay to the end; --churn 20%/min plans with departures'
      : `${Math.round(100 * churnPerMinute)} % of the volunteers leave in a minute, each followed by another`,
    ...unfit.map(
      ({ count: machines, kind, lacks }) =>
        `${machines} ${kind} cannot serve: the job requires ${requiresText(requirementsOf(spec))}; without ${lacks}, ` +
        'as the text says or as such machines are assumed',
    ),
    ...scalingText(plan, spec),
    ...(count - unfitCount > modelled ? [`the model runs with ${modelled} of them: ${leftOut(spec)}`] : []),
    `all come within 10 s; the training begins with ${spec.volunteers?.min ?? 1} of them and takes the others in`,
    ...(best.batchBlocks * best.blockSamples > own.batchBlocks * own.blockSamples
      ? ['a larger batch may need more samples to learn as much: try its learning rate on a short run first']
      : []),
    ...(best.volunteers < own.volunteers
      ? [`a job with \`volunteers: { max: ${best.volunteers} }\` takes them as they come, not the fastest`]
      : []),
    ...targetText(spec, steps),
    `the ring's size and, with exchange auto, its way are the coordinator's own decisions (${waysText()})`,
  ]
}

function machineText(
  { count, kind, samplesPerSecond, gflops }: Crowd['groups'][number],
  speed: number,
  flops: number,
): string {
  const who = `${count} ${count === 1 ? kind.name : kind.plural}`
  if (samplesPerSecond !== undefined) return `${who}: ${rate(speed)} samples/s each, as given`
  const from = gflops === undefined ? `${kind.gflops} GFLOP/s, ${kind.source}` : `${gflops} GFLOP/s, as given`
  return `${who}: ${rate(speed)} samples/s each, from ${from}; a sample takes ${rate(flops / 1e6)} MFLOP`
}

function leftOut({ volunteers }: JobSpec): string {
  return volunteers?.max === undefined ? 'of the others none enters a ring' : `the job takes ${volunteers.max} at most`
}

/** Of a batch that follows the ring. */
function scalingText({ own, warmupSteps }: JobPlan, { optimizer, stop }: JobSpec): string[] {
  if (warmupSteps === undefined) return []
  return [
    `weak scaling: with ${own.members} members the learning rate is ${rate(own.learningRate)}, ` +
      `${rate(own.learningRate / optimizer.lr)} times the file's, ${warmupSteps} steps after the ring has so many` +
      (stop.steps === undefined ? '' : '; a step of a larger ring has more samples'),
  ]
}

function targetText({ stop }: JobSpec, steps: number | undefined): string[] {
  if (stop.target === undefined || steps !== undefined) return []
  return [
    `the target (${stop.metric ?? 'loss'} ${stop.target}) is not reached before the job's last step; ` +
      '--steps N plans with fewer steps',
  ]
}

function waysText(): string {
  return Object.values(EXCHANGES)
    .map(({ mostMembers }) => mostMembers)
    .sort((a, b) => b - a)
    .map((most, i) => (i === 0 ? `rings have ${most} members at most` : `direct exchanges ${most}`))
    .join(', ')
}

function time(seconds: number): string {
  if (!Number.isFinite(seconds)) return 'no step ends within the time that the model runs'
  if (seconds < HOUR) return duration(seconds)
  return `${Math.floor(seconds / HOUR)} h ${Math.round((seconds % HOUR) / 60)} min`
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

function rate(value: number): string {
  return value >= 100 ? whole(value) : String(Number(value.toPrecision(3)))
}

function mbit(bytesPerSecond: number): string {
  return String(Number((bytesPerSecond / MBIT_BYTES).toPrecision(2)))
}

function bytes(count: number): string {
  return count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${(count / 1e6).toFixed(1)} MB`
}

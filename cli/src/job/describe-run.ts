// A run in words for a terminal: a row of a list, a page, a line. What strangers wrote loses control characters.
import {
  crowdText,
  encodingText,
  epochText,
  type ForecastView,
  forecastText,
  type JobList,
  linksInWords,
  type MemberView,
  membersText,
  METRICS,
  metricText,
  type Phase,
  plainText,
  requiresText,
  type RunView,
  scalingText,
  waitText,
} from '@starling-grid/protocol'
import { duration } from '../terminal/progress-line.ts'
import { pairs, table } from '../terminal/table.ts'

const STATES: Readonly<Record<Phase, string>> = {
  waiting: 'waiting',
  freeze: 'agreeing',
  forming: 'forming a ring',
  ring: 'training',
  handover: 'handing over',
  async: 'training',
  validating: 'validating',
  lost: 'waiting for a version',
  finished: 'finished',
}
/** Characters of a name in a list. */
const NAME_LENGTH = 30
/** Members that a page names. */
const MOST_MEMBERS = 12

export function stateOf({ phase, paused }: RunView): string {
  return paused && phase !== 'finished' ? 'paused' : STATES[phase]
}

/** Of one coordinator, or of several that share their jobs. */
interface ListedJobs extends Omit<JobList, 'next'> {
  /** addresses of those that did not answer */
  readonly unreached?: readonly string[]
}

/** Newest first, and then the jobs that cannot be opened. */
export function listLines({ jobs, damaged = [], unreached = [] }: ListedJobs): string[] {
  if (jobs.length + damaged.length + unreached.length === 0) return ['No jobs. `starling job submit FILE` begins one.']
  const isShared = jobs.some(({ coordinators }) => coordinators !== undefined)
  const head = [
    'ID',
    'NAME',
    'STATE',
    'EPOCH',
    'STEP',
    'DONE',
    'LOSS',
    'VALIDATION',
    'PRIORITY',
    'MEMBERS',
    'LEFT',
    'END',
    ...(isShared ? ['COORDINATOR'] : []),
  ]
  const rowOf = (run: RunView): string[] => [...listRow(run), ...(isShared ? [run.coordinators?.owner ?? '-'] : [])]
  const lines = jobs.length === 0 ? [] : table([head, ...jobs.toReversed().map(rowOf)])
  return [
    ...lines,
    ...jobs.toReversed().flatMap(waitLine),
    ...damaged.map(({ message }) => `damaged: ${plainText(message)}`),
    ...unreached.map((url) => `no answer of the coordinator at ${plainText(url)}; its jobs are not listed`),
  ]
}

function listRow(run: RunView): string[] {
  const { job, version, lastStep, lastValidation, etaSeconds } = run
  return [
    job.id,
    plainText(job.name).slice(0, NAME_LENGTH),
    stateOf(run),
    epochText(run),
    String(version.v),
    percent(run.samplesCommitted / Math.max(1, run.samplesExpected)),
    lastStep?.loss.toFixed(4) ?? '-',
    lastValidation === null ? '-' : shortMetric(lastValidation),
    String(job.priority),
    membersText(run),
    leftOf(run.phase, etaSeconds),
    run.phase === 'finished' ? plainText(run.reason) : '-',
  ]
}

function waitLine({ job, wait }: RunView): string[] {
  return wait === null ? [] : [`${job.id} ${plainText(waitText(wait))}`]
}

/** A page about one run. */
export function runLines(run: RunView): string[] {
  const { job, version, lastStep, lastValidation, best, checkpoint } = run
  const done = percent(run.samplesCommitted / Math.max(1, run.samplesExpected))
  const begun = new Date(run.startedAt).toISOString()
  const ended = run.finishedAt === null ? '' : `, ended ${new Date(run.finishedAt).toISOString()}`
  return pairs([
    ['job', `${job.id}  ${plainText(job.name)}`],
    ['owner', `${plainText(job.owner)}: ${plainText(job.purpose)}`],
    ['model', `${plainText(job.model)}, ${count(job.parameters)} parameters`],
    [
      'data',
      `${plainText(job.dataset)}, ${count(job.trainSamples)} samples, ${count(job.validationSamples)} to validate`,
    ],
    ['state', `${stateOf(run)}: ${plainText(run.reason)}`],
    [
      'progress',
      `epoch ${epochText(run)}, step ${version.v}, ` +
        `${count(run.samplesCommitted)} of ${count(run.samplesExpected)} samples (${done})`,
    ],
    ['loss', lastStep === null ? 'no step yet' : `${lastStep.loss.toFixed(4)} at step ${lastStep.v}`],
    ['validation', lastValidation === null ? 'none yet' : validationText(lastValidation)],
    ...(best === null ? [] : [['best', bestText(best)] as [string, string]]),
    ...(run.scaling === undefined ? [] : [['batch', scalingText(run.scaling, job)] as [string, string]]),
    ['speed', speedText(run)],
    ...(run.forecast === undefined ? [] : [['', foreseen(run, run.forecast)] as [string, string]]),
    ...(run.crowd === undefined ? [] : [['crowd', crowdText(run.crowd, run.memberCount)] as [string, string]]),
    ...(run.encoding === undefined ? [] : [['encoding', plainText(encodingText(run.encoding))] as [string, string]]),
    ['checkpoint', checkpoint === null ? 'none yet' : checkpointText(checkpoint)],
    ['begun', `${begun}${ended}`],
    ['priority', String(job.priority)],
    ...requiresRow(job),
    ...(run.coordinators === undefined ? [] : [['coordinator', plainText(run.coordinators.owner)] as [string, string]]),
    ...membersOf(run),
  ])
}

function requiresRow({ requires = {} }: RunView['job']): [string, string][] {
  const text = requiresText(requires)
  return text === undefined ? [] : [['requires', text]]
}

/** Checkpoints by their steps, as `job export --version` takes them. */
export function keptLines({ best }: Pick<RunView, 'best'>, kept: readonly number[]): string[] {
  if (kept.length === 0) return []
  const steps = kept.map((v) => (v === best?.v ? `${v} (best)` : String(v)))
  return pairs([['kept', `${steps.join(', ')}; export --version STEP takes one`]])
}

function validationText({ loss, accuracy, metrics, v, confirmed }: NonNullable<RunView['lastValidation']>): string {
  const all = metrics ?? [{ name: 'accuracy', value: accuracy } as const]
  const values = [`loss ${loss.toFixed(4)}`, ...all.map(({ name, value }) => metricText(name, value))].join(', ')
  return `${values} at step ${v}${confirmed ? '' : ', unconfirmed'}`
}

/** The most telling metric: accuracy where there is no other. */
function shortMetric({ accuracy, metrics }: NonNullable<RunView['lastValidation']>): string {
  const last = metrics?.at(-1)
  return last === undefined || last.name === 'accuracy'
    ? percent(last?.value ?? accuracy)
    : metricText(last.name, last.value)
}

function bestText({ v, metric, value, loss, accuracy }: NonNullable<RunView['best']>): string {
  const other = metric === 'loss' ? metricText('accuracy', accuracy) : metricText('loss', loss)
  return `${metricText(METRICS[metric].name, value)}, ${other} of version ${v}, confirmed`
}

function checkpointText({ v, bytes, witnessed }: NonNullable<RunView['checkpoint']>): string {
  return `version ${v}, ${count(bytes)} bytes${witnessed ? ', confirmed by a second member' : ''}`
}

/** Beside what is measured. */
function foreseen({ phase }: RunView, forecast: ForecastView): string {
  const left = leftOf(phase, forecast.etaSeconds)
  return `${forecastText(forecast)}${left === '-' ? '' : `, ${left} left`}`
}

function speedText({ phase, samplesPerSecond, etaSeconds }: RunView): string {
  const left = leftOf(phase, etaSeconds)
  return `${samplesPerSecond.toFixed(1)} samples/s${left === '-' ? '' : `, ${left} left`}`
}

function membersOf(run: RunView): [string, string][] {
  const { members, memberCount } = run
  const shown = members.slice(0, MOST_MEMBERS).map((member): [string, string] => ['', memberText(member, members)])
  const more = memberCount - shown.length
  return [
    ['members', membersText(run)],
    ...shown,
    ...(shown.length > 0 && more > 0 ? [['', `and ${more} more`] as [string, string]] : []),
  ]
}

function memberText(member: MemberView, members: readonly MemberView[]): string {
  const { name, client, state, activity, samplesPerSecond, adapter } = member
  const links = linksInWords(member, members)
  const doing = activity === '' ? state : `${state}, ${plainText(activity)}`
  const f16 = adapter?.f16 === true ? ' with shader-f16' : ''
  const on = adapter === null ? client : `${client}, ${plainText(adapter.name)}${f16}`
  return (
    `${plainText(name)} (${on}): ${doing}, ${samplesPerSecond.toFixed(1)} samples/s` +
    (links === '' ? '' : `, ${links}`)
  )
}

/** One line about what happens now. */
export function progressLine(run: RunView): string {
  const { version, lastStep, lastValidation, memberCount, samplesPerSecond, etaSeconds } = run
  const left = leftOf(run.phase, etaSeconds)
  return [
    stateOf(run),
    `epoch ${epochText(run)}`,
    `step ${version.v}`,
    ...(lastStep === null ? [] : [`loss ${lastStep.loss.toFixed(4)}`]),
    ...(lastValidation === null ? [] : [`validation ${lastValidation.loss.toFixed(4)} ${shortMetric(lastValidation)}`]),
    `${samplesPerSecond.toFixed(1)} samples/s`,
    `${memberCount} members`,
    ...(left === '-' ? [] : [`${left} left`]),
  ].join('  ')
}

function leftOf(phase: Phase, etaSeconds: number | null): string {
  return etaSeconds === null || phase === 'finished' ? '-' : duration(etaSeconds)
}

function percent(fraction: number): string {
  return `${(100 * fraction).toFixed(1)} %`
}

function count(value: number): string {
  return value.toLocaleString('en-US')
}

// What holds at the moment of a scrape, read from the runs then: nothing of a job stays when it has ended.
import type { RunView } from '@starling-grid/protocol'
import { Counter, Gauge, Registry } from 'prom-client'
import type { RunHost } from '../host/run-host.ts'
import type { Presence } from '../host/run-view.ts'
import { volunteersWanted } from './wanted.ts'

export interface GaugeSource {
  /** of all jobs, the oldest first */
  readonly runs: readonly RunHost[]
  /** jobs that cannot be opened */
  readonly damaged: number
  readonly present: Iterable<Presence>
  readonly relayedLinks: number
  /** bytes of all connections since the start */
  readonly received: number
  readonly sent: number
  /** how this reader is shown a job */
  readonly labelOf: (run: RunHost) => string
  /** those that share their jobs, this one first, with the open jobs of each */
  readonly coordinators: readonly CoordinatorJobs[]
}

/** Which open jobs a coordinator has, as this reader is shown them. */
export interface CoordinatorJobs {
  readonly url: string
  readonly jobs: readonly string[]
}

type Gauges = <Label extends string>(name: string, help: string, labelNames?: readonly Label[]) => Gauge<Label>

/** Made anew for each scrape. */
export function gaugesOf(source: GaugeSource): Registry {
  const registry = new Registry()
  const gauges: Gauges = (name, help, labelNames = []) => new Gauge({ name, help, labelNames, registers: [registry] })
  const open = source.runs.filter(({ finished }) => !finished)
  addJobs(gauges, source, open)
  addMembers(gauges, source)
  addTraffic(registry, source)
  addOwners(gauges, source)
  gauges('starling_relay_links', 'Links between members that are relayed now').set(source.relayedLinks)
  const job = perJob(gauges)
  for (const run of open) job(source.labelOf(run), run.view())
  return registry
}

type JobState = 'running' | 'waiting' | 'paused' | 'finished' | 'damaged'

function stateOf(run: RunHost): JobState {
  if (run.finished) return 'finished'
  if (run.paused) return 'paused'
  return run.state.phase.type === 'waiting' ? 'waiting' : 'running'
}

function addJobs(gauges: Gauges, { runs, damaged }: GaugeSource, open: readonly RunHost[]): void {
  const jobs = gauges('starling_jobs', 'Jobs by state', ['state'])
  for (const state of ['running', 'waiting', 'paused', 'finished'] satisfies JobState[]) jobs.set({ state }, 0)
  for (const run of runs) jobs.inc({ state: stateOf(run) })
  jobs.set({ state: 'damaged' satisfies JobState }, damaged)
  gauges('starling_volunteers_wanted', 'Volunteers that the open jobs have work for').set(
    volunteersWanted(open.map(({ job: { spec }, paused }) => ({ spec, paused }))),
  )
}

/** `none`: connected, and no open job has it. */
function addMembers(gauges: Gauges, { present, runs }: GaugeSource): void {
  const members = gauges('starling_members', 'Connected volunteers, by the mode of the job that they have', ['mode'])
  const modes = new Map(runs.filter(({ finished }) => !finished).map(({ job, state }) => [job.id, state.mode]))
  for (const mode of ['ring', 'local', 'async', 'none']) members.set({ mode }, 0)
  for (const presence of present) {
    const job = presence.job()
    members.inc({ mode: (job && modes.get(job)) ?? 'none' })
  }
}

/** Every one of them tells all: one that is gone tells nothing any more. */
function addOwners(gauges: Gauges, { coordinators }: GaugeSource): void {
  gauges('starling_coordinators', 'Coordinators that share their jobs and live').set(coordinators.length)
  const owner = gauges('starling_job_owner', 'Open jobs, by the address of the coordinator that has each', [
    'job_id',
    'coordinator',
  ])
  for (const { url, jobs } of coordinators) for (const job of jobs) owner.set({ job_id: job, coordinator: url }, 1)
}

function addTraffic(registry: Registry, { received, sent }: GaugeSource): void {
  const counter = (name: string, help: string) => new Counter({ name, help, registers: [registry] })
  counter('starling_received_bytes_total', 'Bytes that came in by all connections').inc(received)
  counter('starling_sent_bytes_total', 'Bytes that went out by all connections').inc(sent)
}

/** A row of figures for each open job. The label is not `job`, which Prometheus gives to what it scrapes. */
function perJob(gauges: Gauges): (job: string, view: RunView) => void {
  const blocks = gauges('starling_job_blocks', 'Blocks of the epoch: to do, leased, done, set aside', [
    'job_id',
    'state',
  ])
  const rows = PER_JOB.map(([name, help, of]) => ({ gauge: gauges(name, help, ['job_id']), of }))
  return (job, view) => {
    const { todo, pending, done, quarantined } = view.queue
    const states = { todo, leased: pending, done, set_aside: quarantined }
    for (const [state, count] of Object.entries(states)) blocks.set({ job_id: job, state }, count)
    for (const { gauge, of } of rows) {
      const value = of(view)
      if (value !== undefined) gauge.set({ job_id: job }, value)
    }
  }
}

const seconds = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : ms / 1000)

const PER_JOB: readonly (readonly [name: string, help: string, of: (view: RunView) => number | undefined])[] = [
  ['starling_job_members', 'Volunteers that have the job', ({ memberCount }) => memberCount],
  ['starling_job_version', 'Steps of the committed chain', ({ version }) => version.v],
  ['starling_job_epoch', 'Epoch, counted from 0', ({ epoch }) => epoch],
  ['starling_job_generation', 'Number of the generation', ({ generation }) => generation],
  ['starling_job_samples', 'Samples that are committed', ({ samplesCommitted }) => samplesCommitted],
  ['starling_job_samples_expected', 'Samples that the whole job commits', ({ samplesExpected }) => samplesExpected],
  ['starling_job_samples_per_second', 'Speed over the last steps', ({ samplesPerSecond }) => samplesPerSecond],
  ['starling_job_loss', 'Mean loss of the last step', ({ lastStep }) => lastStep?.loss],
  ['starling_job_validation_loss', 'Loss of the last validation', ({ lastValidation }) => lastValidation?.loss],
  [
    'starling_job_validation_accuracy',
    'Accuracy of the last validation, 0 to 1',
    ({ lastValidation }) => lastValidation?.accuracy,
  ],
  ['starling_job_last_step_seconds', 'When the last step was committed, Unix time', (v) => seconds(v.lastStep?.at)],
  [
    'starling_job_checkpoint_seconds',
    'When the newest checkpoint was taken, Unix time',
    (v) => seconds(v.checkpoint?.at),
  ],
]

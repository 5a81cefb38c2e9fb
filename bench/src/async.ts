// Samples per second of a grid with one slow member: pushes that nobody waits for against a synchronous parameter server, with
// the same coordinator, volunteers, job and number of samples; and what both have learned at the end. Members are real
// volunteers over real sockets whose computing takes as long as is said here, so that a small machine can hold several.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { createNodeHost } from '@starling-grid/client-node/host'
import { createCoordinator, type Coordinator } from '@starling-grid/coordinator'
import type { AsyncSettings, JobSpec } from '@starling-grid/protocol'
import { createVolunteer, type Executor, type Volunteer, type VolunteerHost } from '@starling-grid/volunteer'
import type { BenchRow } from './row.ts'

const MEMBERS = 6
/** Times that the slow member takes longer. */
const SLOWDOWN = 4
/** ms that a sample takes the others: a step then takes longer than its messages */
const SAMPLE_MS = 4
/** Samples are counted from a tenth to nine tenths of an epoch: joins and the wait for its last blocks say nothing of the rate. */
const COUNTED = [0.1, 0.9] as const
const LOOK_MS = 5
const RUN_LIMIT_MS = 120_000
const TOKEN = 'the-owner-token-of-a-benchmark'

const SYNCHRONOUS: AsyncSettings = { update: 'all' }
/** Of the policies that nobody waits in; late pushes count whole, as those of the synchronous run do. */
const ASYNCHRONOUS: Readonly<Record<string, AsyncSettings>> = {
  each: { update: 'each', damping: 'none', maxStaleness: 64 },
  proportion: { update: 'proportion', proportion: 0.5, damping: 'none', maxStaleness: 64 },
}

interface Outcome {
  readonly samplesPerSecond: number
  readonly samples: number
  /** mean over the validation samples */
  readonly loss: number
}

export async function asyncSuite(): Promise<BenchRow[]> {
  const synchronous = await train(SYNCHRONOUS)
  const rows: BenchRow[] = []
  for (const [name, settings] of Object.entries(ASYNCHRONOUS)) {
    const ours = await train(settings)
    if (ours.samples !== synchronous.samples) throw new Error(`${ours.samples} samples against ${synchronous.samples}: nothing to compare`)
    const members = `${MEMBERS} members, one ${SLOWDOWN}× slower`
    rows.push(row(`async ${name}`, `samples/s (${members})`, { ours: ours.samplesPerSecond, synchronous: synchronous.samplesPerSecond }))
    rows.push(row(`async ${name} loss`, `validation loss after ${ours.samples} samples`, { ours: ours.loss, synchronous: synchronous.loss }))
  }
  return rows
}

function row(name: string, unit: string, { ours, synchronous }: { readonly ours: number; readonly synchronous: number }): BenchRow {
  const value = Number(ours.toPrecision(4))
  return { name, adapter: 'reference', ours: value, unit, min: value, max: value, peers: { synchronous }, ratio: { synchronous: Number((ours / synchronous).toPrecision(4)) } }
}

function job(settings: AsyncSettings): JobSpec {
  return {
    name: 'One slow member', owner: 'the benchmark', purpose: 'Compares ways to wait.',
    model: { name: 'linear', input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] },
    dataset: { source: 'digits' }, optimizer: { type: 'sgd', lr: 0.05, schedule: { type: 'linear', to: 0.05 } },
    blockSamples: 8, batchBlocks: MEMBERS, epochs: 1, seed: 11, mode: 'async', async: settings, minVolunteers: MEMBERS,
  }
}

async function train(settings: AsyncSettings): Promise<Outcome> {
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-bench-'))
  const coordinator = createCoordinator({ dataDir, token: TOKEN, port: 0 })
  await coordinator.start()
  const volunteers: Volunteer[] = []
  try {
    await coordinator.runs.submit(job(settings))
    for (let i = 0; i < MEMBERS; i++) volunteers.push(member(coordinator.url, `member ${i + 1}`, i === 0 ? SLOWDOWN : 1))
    for (const volunteer of volunteers) volunteer.run().catch((error: unknown) => console.error(`a member failed: ${String(error)}`))
    return await watch(coordinator)
  } finally {
    await Promise.all(volunteers.map((volunteer) => volunteer.stop()))
    await coordinator.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

async function watch(coordinator: Coordinator): Promise<Outcome> {
  const run = coordinator.runs.shown()
  if (run === undefined) throw new Error('internal: the job that was submitted is not there')
  const { state } = run
  const all = run.job.training.reduce((sum, { samples }) => sum + samples, 0)
  const marks: { readonly at: number; readonly samples: number }[] = []
  for (const deadline = performance.now() + RUN_LIMIT_MS; !run.finished; await delay(LOOK_MS)) {
    const { samplesCommitted: samples } = state.chain
    const next = COUNTED[marks.length]
    if (next !== undefined && samples >= next * all) marks.push({ at: performance.now(), samples })
    if (performance.now() > deadline) throw new Error(`the run did not end: ${state.phaseReason}, version ${state.chain.head.v}`)
  }
  const [from, to] = marks
  if (from === undefined || to === undefined) throw new Error('the run ended before it could be timed')
  const results = [...(state.validated.get(state.chain.head.id)?.values() ?? [])]
  const total = (of: (result: (typeof results)[number]) => number): number => results.reduce((sum, result) => sum + of(result), 0)
  return {
    samplesPerSecond: (1000 * (to.samples - from.samples)) / (to.at - from.at),
    samples: state.chain.samplesCommitted,
    loss: total(({ lossSum }) => lossSum) / total(({ samples }) => samples),
  }
}

function member(url: string, name: string, slowdown: number): Volunteer {
  const host = createNodeHost({ coordinatorUrl: url, executor: 'reference' })
  const slowed: VolunteerHost = { ...host, createExecutor: async (...asked) => takingTime(await host.createExecutor(...asked), SAMPLE_MS * slowdown) }
  return createVolunteer(slowed, { name, onStatus: () => undefined })
}

/** Gradients take `sampleMs` for each sample, whatever this machine needs for them. */
function takingTime(executor: Executor, sampleMs: number): Executor {
  const compute = executor.gradient.bind(executor)
  return Object.assign(executor, {
    gradient: async (...asked: Parameters<Executor['gradient']>) => {
      const due = performance.now() + asked[0].samples * sampleMs
      const sums = await compute(...asked)
      await delay(Math.max(0, due - performance.now()))
      return sums
    },
  })
}

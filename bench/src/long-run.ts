// A run of very many steps through the production shell of a coordinator, without computing: one member holds every
// step at once. What its journal holds afterwards is what a restart opens.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createCoordinator } from '@starling-grid/coordinator'
import {
  type JobSpec,
  type MemberId,
  memberId,
  type Sha256,
  sha256Name,
  type StepRecord,
  type ToCoordinator,
} from '@starling-grid/protocol'

/** steps in a turn of the event loop: they share a transaction */
const TURN = 500
/** as many as a job may have: the run does not end */
const EPOCHS = 10_000
/** steps between two lines of progress */
const TOLD_STEPS = 100_000
const WORKER: MemberId = memberId('5'.repeat(32))

/** One block of one sample makes a step. */
const JOB: JobSpec = {
  name: 'A very long run',
  owner: 'the Starling benchmarks',
  purpose: 'Measures how long a coordinator takes to open it again.',
  public: true,
  model: {
    name: 'linear',
    input: [1, 28, 28],
    layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
    loss: 'cross_entropy',
  } as JobSpec['model'],
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.01 },
  blockSamples: 1,
  batchBlocks: 1,
  stop: { epochs: EPOCHS },
  evaluate: { everyEpochs: EPOCHS },
  volunteers: { min: 1 },
  audit: 0,
  seed: 1,
  mode: 'ring',
}

export interface LongRun {
  readonly dataDir: string
  readonly state?: string | undefined
  readonly token: string
  readonly steps: number
}

type Run = Awaited<ReturnType<ReturnType<typeof createCoordinator>['runs']['submit']>>

/** Id of the job whose journal has so many steps. */
export async function makeLongRun(asked: LongRun, log: (line: string) => void): Promise<string> {
  const { dataDir, state, token, steps } = asked
  const blobs = pathToFileURL(join(dataDir, 'blobs')).href // which all coordinators of a database have to reach
  const shared = state === undefined ? {} : { state, blobs }
  const coordinator = createCoordinator({ dataDir, token, port: 0, ...shared })
  await coordinator.start()
  try {
    const run = await coordinator.runs.submit(JOB)
    await begin(run)
    for (let v = 0; v < steps; v = run.state.chain.head.v) {
      for (let turn = 0; turn < TURN && run.state.chain.head.v < steps; turn++) step(run)
      // The journal keeps pace: what waits for the disk is bounded by a turn.
      while (run.history.version.v < run.state.chain.head.v) await new Promise((resolve) => setImmediate(resolve))
      if (Math.floor(v / TOLD_STEPS) < Math.floor(run.state.chain.head.v / TOLD_STEPS))
        log(`${run.state.chain.head.v} of ${steps} steps are in the journal`)
    }
    return run.job.id
  } finally {
    await coordinator.stop()
  }
}

/** One member joins, and answers a ballot until the ring runs. */
async function begin(run: Run): Promise<void> {
  const adapter = { name: 'none', vendor: 'load', software: true, executor: 'reference' } as const
  const member = { id: WORKER, name: 'member', client: 'node', adapter } as const
  run.feed({ type: 'member-joined', member, samplesPerSecond: 100 })
  while (run.state.phase.type !== 'ring') {
    const ballot = { fence: run.state.fence, generation: run.state.generation }
    if (run.state.phase.type === 'freeze') say(run, { type: 'state', ...ballot, claim: null })
    if (run.state.phase.type === 'form')
      say(run, { type: 'confirm', ...ballot, version: run.state.phase.target, digest: named(0) })
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
}

function step(run: Run): void {
  const { state } = run
  if (state.phase.type !== 'ring') throw new Error(`expected a ring, got ${state.phase.type}: ${state.phaseReason}`)
  const v = state.chain.head.v + 1
  const blocks = state.phase.planned.get(v)
  if (blocks === undefined) throw new Error(`expected a plan of step ${v}, got none`)
  const { generation, modeEpoch, fence } = state
  const counts = { samples: 1, targets: 1, lossSum: 1, correct: 0, gradDigest: named(v) }
  const record: StepRecord = { v, generation, modeEpoch, kind: 'ring', blocks, ...counts }
  say(run, { type: 'held', fence, generation, record })
  if (state.checkpointing.asked?.v === v)
    run.feed({ type: 'uploaded', member: WORKER, version: state.chain.head, blob: named(v), bytes: 1 })
}

function say(run: Run, message: ToCoordinator): void {
  run.feed({ type: 'message', member: WORKER, message: message as never })
}

function named(v: number): Sha256 {
  return sha256Name(v.toString(16).padStart(64, '0'))
}

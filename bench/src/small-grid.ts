// A grid inside this process for benchmarks that compare ways to train: a real coordinator, real volunteers over real
// sockets and links, the reference executor. What is compared is the job; this file is independent of the reason.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { createNodeHost } from '@starling-grid/client-node/host'
import { createCoordinator, type Coordinator, type Job } from '@starling-grid/coordinator'
import { describeError, type JobSpec } from '@starling-grid/protocol'
import { createVolunteer, type Executor, type VolunteerHost } from '@starling-grid/volunteer'
import { type LineSpeed, slowNetwork } from '@starling-grid/volunteer/testing'
import { StepBytes } from './step-bytes.ts'

/**
 * Samples are counted from a tenth to nine tenths of the run: joins and the wait for its last blocks would distort the
 * rate.
 */
const COUNTED = [0.1, 0.9] as const
const LOOK_MS = 5
const RUN_LIMIT_MS = 300_000
const TOKEN = 'the-owner-token-of-a-benchmark'

export interface TrainedGrid {
  readonly samplesPerSecond: number
  /** in committed versions */
  readonly samples: number
  /** mean over the validation samples, of the last version */
  readonly loss: number
  /** by all members to each other, with headers, manifests and heartbeats */
  readonly bytesBetweenMembers: number
  /** that one member sent to others from one of its gradients to the next, at most */
  readonly peakBytes: number
  /** from the first commit that was seen to the last one, validation not included */
  readonly secondsAfterFirst: number
}

export interface MemberSetting {
  /** that computing one sample takes at least; absent: as long as it takes */
  readonly sampleMs?: number
  /** what it sends to others takes as long as over such a line; absent: as long as it takes */
  readonly line?: LineSpeed
  /** absent: reference */
  readonly executor?: 'reference' | 'wasm'
}

export interface TrainOptions {
  /** parts of the run between which samples are counted for the rate */
  readonly counted?: readonly [number, number]
  /** after the last sample that is counted, computing takes as long as it takes */
  readonly pacedWhileCounted?: true
  /** of the dataset's files */
  readonly dataRoot?: string
  readonly limitMs?: number
}

/** Whether members still take the time that they are told to. */
interface Clockwork {
  paced: boolean
}

/** Submits the job, lets the members train it to its end, and stops everything. */
export async function trainTogether(
  job: JobSpec,
  members: readonly MemberSetting[],
  { counted = COUNTED, pacedWhileCounted, dataRoot, limitMs = RUN_LIMIT_MS }: TrainOptions = {},
): Promise<TrainedGrid> {
  const clockwork: Clockwork = { paced: true }
  const onCounted = (): void => {
    if (pacedWhileCounted) clockwork.paced = false
  }
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-bench-'))
  const coordinator = createCoordinator({
    dataDir,
    token: TOKEN,
    port: 0,
    ...(dataRoot === undefined ? {} : { dataRoot }),
  })
  await coordinator.start()
  const started: StartedMember[] = []
  try {
    await coordinator.runs.submit(job)
    for (const [i, setting] of members.entries())
      started.push(startMember({ url: coordinator.url, name: `member ${i + 1}`, clockwork }, setting))
    const failed = Promise.race(started.map(({ failure }) => failure))
    const outcome = await Promise.race([watch(coordinator, { counted, onCounted, limitMs }), failed])
    return {
      ...outcome,
      bytesBetweenMembers: started.reduce((sum, { bytesSent }) => sum + bytesSent(), 0),
      peakBytes: Math.max(...started.map(({ peakBytes }) => peakBytes())),
    }
  } finally {
    await Promise.all(started.map(({ stop }) => stop()))
    await coordinator.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

interface StartedMember {
  bytesSent(): number
  peakBytes(): number
  stop(): Promise<void>
  /** rejects when the member fails; stays pending otherwise */
  readonly failure: Promise<never>
}

function startMember(
  { url, name, clockwork }: { readonly url: string; readonly name: string; readonly clockwork: Clockwork },
  { sampleMs, line, executor = 'reference' }: MemberSetting,
): StartedMember {
  const host = overLine(createNodeHost({ coordinatorUrl: url, executor, threads: 1 }), line)
  const paced: VolunteerHost =
    sampleMs === undefined
      ? host
      : {
          ...host,
          createExecutor: async (...asked) =>
            takingTime(await host.createExecutor(...asked), () => (clockwork.paced ? sampleMs : 0)),
        }
  const steps = new StepBytes()
  let most = 0
  const volunteer = createVolunteer(steps.watch(paced), {
    name,
    onStatus: ({ bytesSent }) => {
      most = Math.max(most, bytesSent)
    },
  })
  const failure = new Promise<never>((_, reject) => {
    volunteer
      .run()
      .catch((error: unknown) => reject(new Error(`${name} failed: ${describeError(error)}`, { cause: error })))
  })
  failure.catch(() => undefined) // who waits for the run is told
  return { bytesSent: () => most, peakBytes: () => steps.peak, stop: () => volunteer.stop(), failure }
}

function overLine(host: VolunteerHost, line: MemberSetting['line']): VolunteerHost {
  if (line === undefined) return host
  return {
    ...host,
    openPeerNetwork: async (access) => slowNetwork(await host.openPeerNetwork(access), line.bytesPerMs, line.latencyMs),
  }
}

async function watch(
  coordinator: Coordinator,
  { counted, onCounted, limitMs }: Required<Pick<TrainOptions, 'counted' | 'limitMs'>> & { onCounted(): void },
): Promise<Omit<TrainedGrid, 'bytesBetweenMembers' | 'peakBytes'>> {
  const run = coordinator.runs.shown()
  if (run === undefined) throw new Error('internal: the job that was submitted is not there')
  const { state, job, history } = run
  const all = samplesOf(job)
  const marks: { readonly at: number; readonly samples: number }[] = []
  let [firstAt, lastAt] = [Number.NaN, Number.NaN]
  let committed = 0
  for (const deadline = performance.now() + limitMs; history.finishedAt === undefined; await delay(LOOK_MS)) {
    const { samplesCommitted: samples } = history
    if (samples > committed) {
      lastAt = performance.now()
      if (committed === 0) firstAt = lastAt
      committed = samples
    }
    const next = counted[marks.length]
    if (next !== undefined && samples >= next * all) marks.push({ at: performance.now(), samples })
    if (marks.length === counted.length) onCounted()
    if (performance.now() > deadline)
      throw new Error(`the run did not end: ${state.phaseReason}, version ${state.chain.head.v}`)
  }
  const [from, to] = marks
  if (from === undefined || to === undefined) throw new Error('the run ended before it could be timed')
  const results = [...(state.validated.get(state.chain.head.id)?.values() ?? [])]
  const total = (of: (result: (typeof results)[number]) => number): number =>
    results.reduce((sum, result) => sum + of(result), 0)
  return {
    samplesPerSecond: (1000 * (to.samples - from.samples)) / (to.at - from.at),
    samples: history.samplesCommitted,
    secondsAfterFirst: (lastAt - firstAt) / 1000,
    loss: total(({ lossSum }) => lossSum) / total(({ samples }) => samples),
  }
}

/** Of a job that ends after epochs or steps. */
function samplesOf({ spec, training }: Job): number {
  const epoch = [...training].reduce((sum, { samples }) => sum + samples, 0)
  const { epochs, steps } = spec.stop
  return steps === undefined ? (epochs ?? 1) * epoch : steps * spec.batchBlocks * spec.blockSamples
}

/** Gradients take `sampleMs` for each sample, if this machine does not need longer for them. */
function takingTime(executor: Executor, sampleMs: () => number): Executor {
  const compute = executor.gradient.bind(executor)
  return Object.assign(executor, {
    gradient: async (...asked: Parameters<Executor['gradient']>) => {
      const due = performance.now() + asked[0].samples * sampleMs()
      const sums = await compute(...asked)
      await delay(Math.max(0, due - performance.now()))
      return sums
    },
  })
}

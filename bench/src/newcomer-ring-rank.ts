// One of three processes. Ranks 0 and 1 train as a ring, with a computing that takes time and no core. Rank 2 fetches a
// state from rank 0. Real links, exchange, optimizer and recovery, without a coordinator. Their parent decides when.
import { ownSeat, openPeerNetwork } from '@starling-grid/client-node'
import { parameterCount } from '@starling-grid/model'
import {
  describeError,
  type Frame,
  type MemberId,
  random32,
  type StepRecord,
  versionId,
  systemClock,
  sha256Of,
} from '@starling-grid/protocol'
import { bytesOf, Compute, LocalVersion } from '@starling-grid/volunteer'
import {
  type Addressed,
  type EarlyRanges,
  gradientBuckets,
  LinkSet,
  StateFetch,
  StateServer,
  StepReduces,
} from '@starling-grid/volunteer/testing'
import { type NewcomerRingAnswer, type NewcomerRingOrder, STATE_BYTES } from './newcomer-ring-task.ts'
import { batchFor, MODEL, OPTIMIZER } from './overlap-task.ts'
import { timedExecutor } from './timed-executor.ts'

/**
 * ms of computing in a step. A slow GPU beside a fast line makes the exchange of 7.3 MB count.
 */
const STEP_MS = 250
const RING = 2
const OPEN_MS = 30_000
/** of fetches: the members' generations have nothing to do with them here */
const FETCH_GENERATION = 1

const seat = ownSeat()
if (seat === undefined) throw new Error('internal: started without a seat')
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
const { access, members } = seat
const rank = members.indexOf(access.self)
const [source, other] = rank === 0 ? [members[0], members[1]] : [members[0], members[0]]
const peer: MemberId = other ?? access.self

const held = new LocalVersion({ spec: MODEL, optimizer: OPTIMIZER, clipNorm: undefined })
held.adoptInitial({ v: 0, id: versionId('0'.repeat(64)) }, 1)
const compute = new Compute(
  timedExecutor(parameterCount(MODEL), `${STEP_MS} ms a step`, () => STEP_MS),
  held,
  systemClock,
)
const batch = batchFor(rank)
const ranges = gradientBuckets(held.layout)
const lease = compute.buffers.lease()
let sum = lease.values
const state = new Uint8Array(Uint32Array.from({ length: rank === 0 ? STATE_BYTES / 4 : 0 }, random32(1)).buffer)

const links = new LinkSet(
  await openPeerNetwork(access),
  () => Promise.reject(new Error('internal: no relay here')),
  {
    onFrame: (from, frame) => received(from, frame),
    onLost: (_, __, error) => {
      throw error
    },
  },
  { clock: systemClock },
)
links.expect(members)
const send = (to: MemberId, frame: Frame): void => links.send(to, frame)
let reduces: StepReduces | undefined
const sendAll = (frames: readonly Addressed[] = []): void => {
  for (const { frame } of frames) send(peer, frame)
}
const server = new StateServer({
  clock: systemClock,
  send,
  mayServe: () => true,
  promised: () => FETCH_GENERATION,
  bytesOf: () => state,
})
const fetch = new StateFetch({
  clock: systemClock,
  send,
  reach: (member, signal) => links.ensure(member, 'dial', signal),
})

function received(from: MemberId, frame: Frame): void {
  if (frame.type === 'fetch') server.serve(from, frame)
  else if (rank < RING) sendAll(reduces?.accept(frame))
  else fetch.accept(from, frame)
}

function prepare(generation: number): void {
  reduces = new StepReduces({ generation, rank, size: RING, length: sum.length, buckets: ranges }, 1)
}

/** What a member does in a step (generation/step.ts). */
async function makeStep(generation: number, step: number): Promise<number> {
  const begin = performance.now()
  const onFinal = (bucket: number): void => sendAll(reduces?.at(step).contributeBucket(bucket, lease.values))
  const early: EarlyRanges = { ranges, onFinal }
  const targets = (await compute.heldGradient(lease, batch, early))?.sums.targets ?? 0
  const manifest = { blocks: [], samples: batch.samples, targets, lossSum: 1, correct: 0 }
  sendAll(reduces?.contribute(step, lease.values, manifest))
  sum = (await reduces?.reduced())?.sum ?? sum
  const gradDigest = await sha256Of(bytesOf(sum))
  const record: StepRecord = {
    v: step,
    generation,
    modeEpoch: 0,
    kind: 'ring',
    blocks: [],
    samples: batch.samples,
    targets,
    lossSum: 1,
    correct: 0,
    gradDigest,
  }
  held.apply(record, { v: step, id: versionId(gradDigest) }, sum)
  return performance.now() - begin
}

/** The fetch compares every chunk with its hash: what it gives is the state. */
async function fetchState(v: number): Promise<number> {
  const begin = performance.now()
  const wanted = {
    kind: 'state',
    version: { v, id: versionId(String(v).padStart(64, '0')) },
    generation: FETCH_GENERATION,
    maxBytes: STATE_BYTES,
  } as const
  const got = await fetch.fetch(wanted, [source ?? access.self], AbortSignal.timeout(120_000))
  if (got.byteLength !== STATE_BYTES) throw new Error(`${got.byteLength} of ${STATE_BYTES} bytes came: nothing to time`)
  return performance.now() - begin
}

async function obey(order: Exclude<NewcomerRingOrder, { type: 'leave' }>): Promise<number[]> {
  switch (order.type) {
    case 'prepare':
      prepare(order.generation)
      return []
    case 'steps': {
      const times: number[] = []
      for (let step = 1; step <= order.count; step++) times.push(await makeStep(order.generation, step))
      return times
    }
    case 'fetch':
      return [await fetchState(order.version)]
  }
}

process.on('message', (order: NewcomerRingOrder | 'go') => {
  if (order === 'go') return void connect()
  if (order.type === 'leave') return leave()
  obey(order).then(
    (times) => process.send?.({ times } satisfies NewcomerRingAnswer),
    (error: unknown) => process.send?.({ error: describeError(error) } satisfies NewcomerRingAnswer),
  )
})
process.send?.('ready')

async function connect(): Promise<void> {
  if (rank < RING) await links.ensure(peer, rank === 0 ? 'dial' : 'await', AbortSignal.timeout(OPEN_MS))
  process.send?.('linked')
}

function leave(): void {
  server.stop()
  links.close()
  process.removeAllListeners('disconnect')
  process.disconnect()
  process.exit()
}

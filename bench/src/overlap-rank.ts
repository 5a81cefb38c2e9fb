// A member of the ring as a process of its own: real links, executor, reduce and optimizer, without a coordinator. Its
// parent chooses the parts of a step, so that computing, exchanging and both can be timed apart.
import { readFile } from 'node:fs/promises'
import { ownSeat, openGpu, type OpenGpu, openPeerNetwork } from '@starling-grid/client-node'
import { parameterCount } from '@starling-grid/model'
import {
  describeError,
  type MemberId,
  sha256Name,
  type StepRecord,
  versionId,
  systemClock,
  sha256Of,
} from '@starling-grid/protocol'
import { bytesOf, Compute, createGpuExecutor, type Executor, LocalVersion } from '@starling-grid/volunteer'
import {
  type Addressed,
  type EarlyRanges,
  gradientBuckets,
  LinkSet,
  slowNetwork,
  StepReduces,
} from '@starling-grid/volunteer/testing'
import {
  batchFor,
  LINK_BYTES_PER_MS,
  MODEL,
  OPTIMIZER,
  STEP_MS,
  TIMED,
  type OverlapAnswer,
  type OverlapOrder,
  type StepWay,
} from './overlap-task.ts'
import { timedExecutor } from './timed-executor.ts'

const seat = ownSeat()
if (seat === undefined) throw new Error('internal: started without a seat')
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
const { access, members } = seat
const rank = members.indexOf(access.self)
const peer: MemberId = members[1 - rank] ?? access.self

const gpu = process.argv[2] === TIMED ? undefined : await openGpu({ adapter: process.argv[2] })
const executor =
  gpu === undefined
    ? timedExecutor(parameterCount(MODEL), `${STEP_MS} ms a step`, () => STEP_MS)
    : await executorOn(gpu)
const held = new LocalVersion({ spec: MODEL, optimizer: OPTIMIZER, clipNorm: undefined })
held.adoptInitial({ v: 0, id: versionId('0'.repeat(64)) }, 1)
const compute = new Compute(executor, held, systemClock)
const batch = batchFor(rank)
const ranges = gradientBuckets(held.layout)

const lease = compute.buffers.lease()
let sum = lease.values
const links = new LinkSet(
  slowNetwork(await openPeerNetwork(access), LINK_BYTES_PER_MS),
  () => Promise.reject(new Error('internal: no relay')),
  {
    onFrame: (_, frame) => send(reduces?.accept(frame)),
    onLost: (_, __, error) => {
      throw error
    },
  },
  { clock: systemClock },
)
let reduces: StepReduces | undefined

function send(frames: readonly Addressed[] = []): void {
  for (const { frame } of frames) links.send(peer, frame)
}

function prepare(generation: number, way: StepWay): void {
  const alone = way === 'compute'
  reduces = new StepReduces(
    {
      generation,
      rank: alone ? 0 : rank,
      size: alone ? 1 : members.length,
      length: sum.length,
      ...(way === 'whole' ? {} : { buckets: ranges }),
    },
    1,
  )
}

/** What a member does in a step (generation/step.ts), or a part of it. */
async function go(generation: number, way: StepWay): Promise<void> {
  const onFinal = (bucket: number): void => send(reduces?.at(1).contributeBucket(bucket, lease.values))
  const early: EarlyRanges = { ranges, onFinal }
  const computed =
    way === 'exchange' ? undefined : await compute.heldGradient(lease, batch, way === 'overlap' ? early : undefined)
  const targets = computed?.sums.targets ?? 1
  const manifest = { blocks: [], samples: batch.samples, targets, lossSum: 1, correct: 0 }
  send(reduces?.contribute(1, lease.values, manifest))
  sum = (await reduces?.reduced())?.sum ?? sum
  if (way === 'exchange') return
  const gradDigest = await sha256Of(bytesOf(sum))
  const record: StepRecord = {
    v: generation,
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
  held.apply(record, { v: generation, id: versionId(gradDigest) }, sum)
}

async function obey(order: Exclude<OverlapOrder, { type: 'leave' }>): Promise<OverlapAnswer> {
  const begin = performance.now()
  if (order.type === 'prepare') prepare(order.generation, order.way)
  else await go(order.generation, order.way)
  const ms = performance.now() - begin
  return {
    ms,
    adapter: executor.adapter.name,
    digest: order.type === 'go' ? await sha256Of(bytesOf(sum)) : sha256Name(''),
  }
}

process.on('message', (order: OverlapOrder | 'go') => {
  if (order === 'go') return void connect()
  if (order.type === 'leave') return leave()
  obey(order).then(
    (value) => process.send?.({ value }),
    (error: unknown) => process.send?.({ error: describeError(error) }),
  )
})
process.send?.('ready')

function executorOn({ device, description: adapter }: OpenGpu): Promise<Executor> {
  return createGpuExecutor({
    device,
    adapter,
    spec: MODEL,
    readText: (url) => readFile(url, 'utf8'),
    tuning: { budgetMs: 1500 },
  })
}

async function connect(): Promise<void> {
  links.expect([peer])
  await links.ensure(peer, access.self < peer ? 'dial' : 'await', AbortSignal.timeout(30_000))
  process.send?.('linked')
}

function leave(): void {
  links.close()
  executor.destroy()
  gpu?.close()
  process.removeAllListeners('disconnect')
  process.disconnect()
  process.exit()
}

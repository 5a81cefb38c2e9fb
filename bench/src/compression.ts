// Encodings of the all-reduce: how fast processes of this machine sum a vector, how many bytes they send, and what
// training loses. For that, four members reduce in memory, and their loss after equal steps is compared with f32.
import { initialParameters, mlp, parameterCount } from '@starling-grid/model'
import { newMemberId, random32 } from '@starling-grid/protocol'
import {
  type Communicator,
  createReferenceExecutor,
  type Executor,
  networkMesh,
  openCommunicator,
} from '@starling-grid/volunteer'
import { type Encoding, swapped } from '@starling-grid/volunteer/collectives'
import { type Batch, MemoryGrid } from '@starling-grid/volunteer/testing'
import { encodeBeforeReadback } from './encode-before-readback.ts'
import { type EncodingName, startEncoding } from './encodings.ts'
import { slowest, startProcesses } from './rank-orders.ts'
import { type BenchRow, race } from './row.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

const RANKS = 2
const NUMBERS = 1_000_000
const ENCODINGS: readonly EncodingName[] = ['f16', 'int8', 'top-k 1 %', 'PowerSGD r2']

/** wanted of int8: a loss at most 0.3 % higher than that of f32, and so many times fewer bytes */
const [INT8_LOSS, INT8_BYTES] = [0.997, 3.8]

const MEMBERS = 4
const STEPS = 150
const SAMPLES_PER_MEMBER = 16
const LEARNING_RATE = 0.2
const SPEC = mlp({ input: [1, 8, 8], hidden: [64], classes: 10 })
const CLASSES = 10
const INPUTS = 64
const NOISE = 3

export async function compressionSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const { rounds, log } = options
  const named = (part: string): boolean => isWanted(options, part)
  return [
    ...(named('own gradient') ? await encodeBeforeReadback(options) : []),
    ...(named('all-reduce') ? await rates(rounds) : []),
    ...(named('loss') ? await losses(log) : []),
  ]
}

/** f32 bytes of the vector ÷ time. */
async function rates(rounds: number): Promise<BenchRow[]> {
  const ranks = await startProcesses(RANKS, false)
  const rows: BenchRow[] = []
  const rate = (encoding: EncodingName) => async () =>
    (4 * NUMBERS) / 1000 / slowest(await ranks.order({ type: 'reduce', numbers: NUMBERS, encoding }))
  for (const encoding of ENCODINGS) {
    await ranks.order({ type: 'check', numbers: NUMBERS, encoding })
    rows.push(
      await race(
        { name: `all-reduce 4 MB as ${encoding}`, adapter: 'WebRTC', unit: 'MB/s' },
        rate(encoding),
        { f32: rate('f32') },
        rounds,
      ),
    )
  }
  await ranks.close()
  return rows
}

interface TrainedEncoding {
  /** mean loss of the last tenth of the steps */
  readonly loss: number
  /** that one rank sent in each step */
  readonly bytes: number
}

/** Nothing is timed here, and nothing is random but by seed: one run says it. */
async function losses(log: SuiteOptions['log']): Promise<BenchRow[]> {
  const plain = await train('f32')
  const rows: BenchRow[] = []
  for (const encoding of ENCODINGS) {
    log(`training with ${encoding}`)
    const { loss, bytes } = await train(encoding)
    const lossRow = row(`loss after ${STEPS} steps with ${encoding}`, 'nats', loss, plain.loss)
    const bytesRow = row(`bytes a step with ${encoding}`, 'bytes', bytes, plain.bytes)
    const wanted = encoding === 'int8'
    rows.push(
      wanted ? { ...lossRow, reach: { peer: 'f32', ratio: INT8_LOSS } } : lossRow,
      wanted ? { ...bytesRow, reach: { peer: 'f32', ratio: INT8_BYTES } } : bytesRow,
    )
  }
  return rows
}

function row(name: string, unit: string, ours: number, f32: number): BenchRow {
  return {
    name,
    adapter: 'reference',
    unit,
    better: 'less',
    ours,
    min: ours,
    max: ours,
    peers: { f32 },
    ratio: { f32: Number((f32 / ours).toPrecision(4)) },
  }
}

async function train(encoding: EncodingName): Promise<TrainedEncoding> {
  const grid = new MemoryGrid()
  const ids = Array.from({ length: MEMBERS }, newMemberId)
  const groups = ids.map((id, rank) => openCommunicator(networkMesh(grid.join(id), ids, rank)))
  const losses = await Promise.all(groups.map((group) => trainMember(group, encoding)))
  const bytes = Math.round(Math.max(...groups.map(({ bytesSent }) => bytesSent)) / STEPS)
  await Promise.all(groups.map((group) => group.close()))
  const last = losses[0]?.slice(-Math.ceil(STEPS / 10)) ?? []
  return { loss: last.reduce((sum, loss) => sum + loss, 0) / last.length, bytes }
}

/** The mean loss of all members at each step. */
async function trainMember(group: Communicator, name: EncodingName): Promise<number[]> {
  const executor = createReferenceExecutor(SPEC)
  const parameters = initialParameters(SPEC, 1)
  const losses: number[] = []
  let encoding = startEncoding(name, parameters.length)
  for (let step = 0; step < STEPS; step++) {
    const { gradient, loss } = await gradientOf(executor, parameters, step * MEMBERS + group.rank)
    const [mean, meanLoss] = await Promise.all([
      group.allReduce(gradient, { op: 'mean', encoding, algorithm: 'direct' }),
      group.allReduce(Float32Array.of(loss), { op: 'mean' }),
    ])
    encoding = nextEncoding(encoding)
    for (let i = 0; i < parameters.length; i++) parameters[i] = (parameters[i] ?? 0) - LEARNING_RATE * (mean[i] ?? 0)
    losses.push(meanLoss[0] ?? NaN)
  }
  executor.destroy()
  return losses
}

async function gradientOf(
  executor: Executor,
  parameters: Float32Array,
  seed: number,
): Promise<{ readonly gradient: Float32Array; readonly loss: number }> {
  const gradient = new Float32Array(parameterCount(SPEC))
  const batch = digits(seed)
  executor.loadParameters(parameters)
  const { lossSum } = await executor.gradient(batch, gradient)
  return { gradient: gradient.map((value) => value / batch.samples), loss: lossSum / batch.samples }
}

/** Ten patterns under noise: learnable, but not at once. */
function digits(seed: number): Batch {
  const random = random32(seed + 1)
  const uniform = (): number => random() / 2 ** 32
  const y = Int32Array.from({ length: SAMPLES_PER_MEMBER }, () => random() % CLASSES)
  const x = Float32Array.from({ length: SAMPLES_PER_MEMBER * INPUTS }, (_, i) => {
    const label = y[Math.floor(i / INPUTS)] ?? 0
    return 0.5 * Math.sin((label + 1) * ((i % INPUTS) + 1)) + NOISE * (uniform() - 0.5)
  })
  return { samples: SAMPLES_PER_MEMBER, x, y }
}

/** What the step left behind goes into the next one. */
function nextEncoding(encoding: Encoding): Encoding {
  if (encoding.type === 'power-sgd') return { ...encoding, state: encoding.next, next: encoding.state }
  return encoding.type === 'f32' || encoding.feedback === undefined
    ? encoding
    : { ...encoding, feedback: swapped(encoding.feedback) }
}

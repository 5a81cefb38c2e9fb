import {
  algorithmsFor,
  type ChunkEncoding,
  codecsOf,
  type Encoding,
  encodedBytes,
  type PowerSgdEncoding,
  requireEncodable,
  withResidual,
} from '../codec/encoding.ts'
import { emptyLike, finish, type Numbers, type ReduceOp, requireLength, requireReducible } from '../codec/numbers.ts'
// The all-reduce with its encodings: which parts of it run as which collectives. Chunk encodings are one exchange;
// top-k is an all-gather, PowerSGD three sums. All of them take their places in line before anything is awaited.
import { powerSgdAllReduce, type PowerSgdStage, topKAllReduce } from './compressed-reduce.ts'
import { type AlgorithmOptions, cut, type GroupRunner } from './group-runner.ts'
import type { Ticket } from './ticket.ts'

export interface AllReduceOptions<T> extends AlgorithmOptions {
  /** default 'sum' */
  readonly op?: ReduceOp
  /** default f32: numbers as they are. Encodings serve sums and means of floats */
  readonly encoding?: Encoding
  /**
   * where the result goes; may be the input itself, which is lost then if the operation fails. A new array when absent
   */
  readonly into?: T
}

const AS_THEY_ARE: ChunkEncoding = { type: 'f32' }

export async function allReduce<T extends Numbers>(
  runner: GroupRunner,
  values: T,
  options: AllReduceOptions<T>,
): Promise<T> {
  const { op = 'sum', encoding = AS_THEY_ARE, into = emptyLike(values, values.length) } = options
  requireReducible(op, values)
  requireEncodable(encoding, op, values)
  requireLength('into', into, values.length)
  if (encoding.type === 'top-k')
    into.set(await topKAllReduce(values as Float32Array, encoding, (bytes) => runner.allGather(bytes, options)))
  else if (encoding.type === 'power-sgd')
    into.set(await powerSgd(runner, values as Float32Array, { ...options, encoding }))
  else await inChunks(runner, values, { ...options, op, encoding, into })
  finish(op, into, runner.ranks.length)
  return into
}

interface ChunkOptions<T> extends AlgorithmOptions {
  readonly op: ReduceOp
  readonly encoding: ChunkEncoding
  readonly into: T
}

function inChunks<T extends Numbers>(
  runner: GroupRunner,
  values: T,
  options: ChunkOptions<T>,
  ticket?: Ticket,
): Promise<void> {
  const { op, encoding, into } = options
  const algorithm = runner.pick('allReduce', encodedBytes(encoding, values.length), options, algorithmsFor(encoding))
  const feedback = encoding.type === 'f32' ? undefined : encoding.feedback
  if (feedback === undefined) into.set(values)
  else withResidual(values as Float32Array, feedback.residual, into as Float32Array)
  feedback?.next.fill(0)
  const task = {
    collective: 'allReduce',
    algorithm,
    op,
    length: into.length,
    codecs: codecsOf(encoding, algorithm, into),
    segment: cut(into),
    residual: feedback?.next,
  } as const
  return runner.run(task, options, ticket)
}

async function powerSgd(
  runner: GroupRunner,
  values: Float32Array,
  options: AlgorithmOptions & { readonly encoding: PowerSgdEncoding },
): Promise<Float32Array> {
  const tickets: Record<PowerSgdStage, Ticket> = {
    outside: runner.ticket(),
    left: runner.ticket(),
    right: runner.ticket(),
  }
  try {
    return await powerSgdAllReduce(values, options.encoding, async (stage, part) => {
      await inChunks(runner, part, { ...options, op: 'sum', encoding: AS_THEY_ARE, into: part }, tickets[stage])
      return part
    })
  } finally {
    for (const ticket of Object.values(tickets)) runner.giveBack(ticket)
  }
}

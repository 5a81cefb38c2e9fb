// The exchanges that a generation may use, a row each. All others name one and know none: a further exchange is a row
// here, its name in protocol, and its cost in the coordinator's exchange-model.ts.
import { type Exchange, FRAME_PAYLOAD_BYTES, type GradientEncoding } from '@starling-grid/protocol'
import { RingCodec } from '../codec/ring-codec.ts'
import type { FloatRange } from '../floats.ts'
import { DirectReduce } from './direct-reduce.ts'
import type { Reduce, StepReduceOptions } from './reduce.ts'
import { RingReduce } from './ring-reduce.ts'
import { cutIntoChunks, ownSegment, type WorldRank } from './schedule.ts'

interface ExchangeRow {
  /** of one step, with several members */
  readonly reduce: (options: StepReduceOptions) => Reduce
  /** This member's contribution of the segment leaves as it is, not added to numbers of others first. */
  readonly leaves: (world: WorldRank, segment: number) => boolean
}

const EXCHANGES: Readonly<Record<Exchange, ExchangeRow>> = {
  ring: {
    reduce: (options) => new RingReduce(options),
    leaves: (world, segment) => segment === ownSegment(world),
  },
  direct: {
    reduce: (options) => new DirectReduce(options),
    leaves: (world, segment) => segment !== ownSegment(world),
  },
}

/** The reduce of one step. A member alone is a ring of one. */
export function reduceOf(exchange: Exchange, options: StepReduceOptions): Reduce {
  return EXCHANGES[options.world.size > 1 ? exchange : 'ring'].reduce(options)
}

export interface LeavingOptions {
  readonly exchange: Exchange
  readonly world: WorldRank
  readonly buckets: readonly FloatRange[]
  readonly encoding: GradientEncoding
  /** payload bytes of one frame */
  readonly chunkBytes?: number
}

/** The runs of a member's contribution that leave unchanged, by bucket, in the order of the reduce's chunks. Pure. */
export function leavingRuns({
  exchange,
  world,
  buckets,
  encoding,
  chunkBytes = FRAME_PAYLOAD_BYTES,
}: LeavingOptions): FloatRange[][] {
  const chunkFloats = new RingCodec(encoding).chunkFloats(chunkBytes)
  const { leaves } = EXCHANGES[exchange]
  const runs: FloatRange[][] = buckets.map(() => [])
  for (const { bucket, segment, start, floats } of cutIntoChunks({ buckets, size: world.size, chunkFloats }))
    if (leaves(world, segment)) runs[bucket]?.push({ start, end: start + floats })
  return runs
}

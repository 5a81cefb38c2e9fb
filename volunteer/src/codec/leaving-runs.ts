// The runs of a member's contribution that leave it unchanged: in the ring its first segment, in a direct exchange all
// parts but its own. What is added to others' numbers first is not among them. Pure; the runs are the chunks of
// ring-reduce.ts and direct-reduce.ts.
import { type Exchange, FRAME_PAYLOAD_BYTES, type GradientEncoding } from '@starling-grid/protocol'
import type { FloatRange } from '../floats.ts'
import { cutIntoChunks, ownSegment, type WorldRank } from '../reduce/schedule.ts'
import { RingCodec } from './ring-codec.ts'

export interface LeavingOptions {
  readonly exchange: Exchange
  readonly world: WorldRank
  readonly buckets: readonly FloatRange[]
  readonly encoding: GradientEncoding
  /** payload bytes of one frame */
  readonly chunkBytes?: number
}

/** By bucket, in the order of the chunks. */
export function leavingRuns({
  exchange,
  world,
  buckets,
  encoding,
  chunkBytes = FRAME_PAYLOAD_BYTES,
}: LeavingOptions): FloatRange[][] {
  const chunks = cutIntoChunks({
    buckets,
    size: world.size,
    chunkFloats: new RingCodec(encoding).chunkFloats(chunkBytes),
  })
  const leaves = (segment: number): boolean => (segment === ownSegment(world)) === (exchange === 'ring')
  return buckets.map((_, index) =>
    chunks.flatMap(({ bucket, segment, start, floats }) =>
      bucket === index && leaves(segment) ? [{ start, end: start + floats }] : [],
    ),
  )
}

// Which part of the vector a ring member sends and receives at which hop. Pure; independent of frames or links.
//
// A vector is cut into buckets, a bucket into N segments (N = ring size), a segment into chunks: the unit that travels.
// Reduce-scatter, hop h = 0 … N−2: member r sends segment r−h to its successor and adds what it receives, segment
// r−1−h. After it, member r holds the whole sum of segment r+1.
// All-gather, hop h = 0 … N−2: member r sends segment r+1−h and receives segment r−h. All indices are modulo N.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009);
// made common in training by Baidu's ring-allreduce (2017) and Horovod (2018).

import type { FloatRange } from '../floats.ts'

/** A member of a generation: rank `rank` sends to `rank + 1` modulo `size`. */
export interface WorldRank {
  readonly rank: number
  readonly size: number
}

/** A run of floats that travels as one frame. */
export interface Chunk {
  /** its number in the whole vector, from 0 */
  readonly index: number
  readonly bucket: number
  readonly segment: number
  /** first float, in the bucket */
  readonly offset: number
  /** first float, in the vector */
  readonly start: number
  readonly floats: number
}

/** The segment that `position` contributes first, as hop 0 of the reduce-scatter. */
export function ownSegment(world: WorldRank): number {
  return world.rank
}

/** The segment whose sum `position` completes. */
export function completedSegment({ rank: index, size }: WorldRank): number {
  return (index + 1) % size
}

/** Hop at which `position` receives partial sums of `segment`; N−1 for its own segment: never. */
export function partialHop({ rank: index, size }: WorldRank, segment: number): number {
  return (index - 1 - segment + 2 * size) % size
}

/** Hop at which `position` receives the sum of `segment`; N−1 for the segment that it completed itself: never. */
export function reducedHop({ rank: index, size }: WorldRank, segment: number): number {
  return (index - segment + size) % size
}

/** Hop at which `position` receives the manifest of member `author`; N−1 for its own: never. */
export function manifestHop(world: WorldRank, author: number): number {
  return partialHop(world, author)
}

/** Hops of each half of the all-reduce; a frame with this hop number does not exist. */
export function hops({ size }: WorldRank): number {
  return size - 1
}

export interface CutOptions {
  /** each a run of the vector; together the whole of it, in any order */
  readonly buckets: readonly FloatRange[]
  /** members of the ring */
  readonly size: number
  readonly chunkFloats: number
}

/**
 * All chunks, bucket by bucket. Segments of a bucket differ by at most one float; those of short buckets may be empty.
 */
export function cutIntoChunks({ buckets, size, chunkFloats }: CutOptions): Chunk[] {
  const chunks: Chunk[] = []
  for (const [bucket, range] of buckets.entries()) {
    const length = range.end - range.start
    for (let segment = 0; segment < size; segment++) {
      const end = segmentStart(length, size, segment + 1)
      for (let offset = segmentStart(length, size, segment); offset < end; offset += chunkFloats) {
        const floats = Math.min(chunkFloats, end - offset)
        chunks.push({ index: chunks.length, bucket, segment, offset, start: range.start + offset, floats })
      }
    }
  }
  return chunks
}

/** All chunks, those of a bucket, and the one that begins at a place. */
export class ChunkMap {
  readonly all: readonly Chunk[]
  readonly #buckets: readonly Map<number, Chunk>[]

  constructor(options: CutOptions) {
    this.all = cutIntoChunks(options)
    this.#buckets = options.buckets.map(() => new Map())
    for (const chunk of this.all) this.#buckets[chunk.bucket]?.set(chunk.offset, chunk)
  }

  /** In the order of their places. */
  of(bucket: number): Chunk[] {
    return [...(this.#buckets[bucket]?.values() ?? [])]
  }

  at({ bucket, offset }: Pick<Chunk, 'bucket' | 'offset'>): Chunk | undefined {
    return this.#buckets[bucket]?.get(offset)
  }
}

/** Floats of one bucket unless the caller chooses, 4 MiB: segments stay above a chunk even in the largest ring. */
export const BUCKET_FLOATS = 1024 * 1024

/** The vector from its beginning, in buckets of so many floats. */
export function evenBuckets(length: number, floats: number): FloatRange[] {
  return Array.from({ length: Math.ceil(length / floats) }, (_, i) => ({
    start: i * floats,
    end: Math.min((i + 1) * floats, length),
  }))
}

/**
 * The first of `length` floats that is in `segment`, when they are cut into `size` segments that differ by at most one
 * float.
 */
export function segmentStart(length: number, size: number, segment: number): number {
  return Math.floor((segment * length) / size)
}

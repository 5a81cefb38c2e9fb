// The all-reduce of one step around the ring (schedule.ts has the source): frames come from the predecessor and go to
// the successor. Every chunk is forwarded as soon as it was added, so that hops overlap. In the all-gather its bytes
// are forwarded unchanged, so that all members decode equal bytes.
import { type Frame, GridError } from '@starling-grid/protocol'
import { combine } from '../codec/numbers.ts'
import { allFinite } from '../floats.ts'
import { type Addressed, malformed, Reduce, type StepReduceOptions, unexpected } from './reduce.ts'
import {
  type Chunk,
  completedSegment,
  hops,
  manifestHop,
  ownSegment,
  partialHop,
  reducedHop,
  type WorldRank,
} from './schedule.ts'

/** What a member knows of one chunk; it only ever grows. */
const CHUNK = {
  empty: 0,
  /** partial sum came before this member's contribution and waits in the sum */
  early: 1,
  /** own contribution is in and on its way to the successor */
  forwarded: 2,
  whole: 3,
} as const

export class RingReduce extends Reduce {
  readonly #states: Uint8Array

  constructor(options: StepReduceOptions) {
    super(options, (chunks) => framesToCome(options.world, chunks))
    this.#states = new Uint8Array(this.chunks.all.length)
  }

  get waitsFor(): number[] {
    const { rank, size } = this.world
    const { received, expected } = this.progress
    return received < expected ? [(rank + size - 1) % size] : []
  }

  protected onContributed(bucket: number, encoded: Iterator<Uint8Array, undefined>): Addressed[] {
    if (this.world.size > 1) return this.chunks.of(bucket).flatMap((chunk) => this.#contributeChunk(chunk, encoded))
    this.sumAlone(bucket)
    return []
  }

  protected ownManifest(frame: Frame): Addressed[] {
    return this.world.size === 1 ? [] : [this.#toSuccessor(frame)]
  }

  #contributeChunk(chunk: Chunk, encoded: Iterator<Uint8Array, undefined>): Addressed[] {
    if (chunk.segment !== ownSegment(this.world))
      return this.#states[chunk.index] === CHUNK.early ? [this.#add(chunk)] : []
    this.#states[chunk.index] = CHUNK.forwarded
    return [this.#toSuccessor(this.frame('partial', chunk, this.leaving(chunk, encoded.next().value)))]
  }

  protected onPartial(frame: Frame): Addressed[] {
    const chunk = this.#chunkOf(frame, partialHop)
    if (this.#states[chunk.index] !== CHUNK.empty) return []
    this.decode(frame, this.sumIn(chunk))
    const added = this.hasOwn(chunk.bucket) ? [this.#add(chunk)] : []
    if (added.length === 0) this.#states[chunk.index] = CHUNK.early
    this.came()
    return added
  }

  /** Adds this member's contribution to the received partial sum and forwards it. */
  #add(chunk: Chunk): Addressed {
    const sum = this.sumIn(chunk)
    combine('sum', sum, this.ownIn(chunk))
    if (!allFinite(sum))
      throw new GridError(
        'gradient-not-finite',
        `expected a finite sum, got NaN or infinity in bucket ${chunk.bucket}, ` +
          `floats ${chunk.offset} to ${chunk.offset + chunk.floats}`,
      )
    const completed = chunk.segment === completedSegment(this.world)
    const payload = this.travelling(chunk, completed)
    this.#states[chunk.index] = completed ? CHUNK.whole : CHUNK.forwarded
    const frame = completed
      ? this.frame('reduced', chunk, payload)
      : this.frame('partial', chunk, payload, partialHop(this.world, chunk.segment) + 1)
    return this.#toSuccessor(frame)
  }

  protected onReduced(frame: Frame): Addressed[] {
    const chunk = this.#chunkOf(frame, reducedHop)
    const state = this.#states[chunk.index]
    if (state === CHUNK.whole) return []
    // Our contribution has not left yet, so no honest member has this sum: it is made up.
    if (state !== CHUNK.forwarded)
      throw unexpected(
        `expected a sum with this member's contribution, got bucket ${frame.bucket} at ${frame.offset} without it`,
      )
    this.decode(frame, this.sumIn(chunk))
    this.#states[chunk.index] = CHUNK.whole
    this.came()
    return this.#goesOn(frame)
  }

  protected onManifest(frame: Frame): Addressed[] {
    const author = frame.bucket
    const isDue =
      author < this.world.size && frame.hop < hops(this.world) && frame.hop === manifestHop(this.world, author)
    if (!isDue || frame.offset !== 0) throw malformed(frame, `no manifest of member ${author} comes here at this hop`)
    return this.takeManifest(author, frame) ? this.#goesOn(frame) : []
  }

  /** What every member gets, as the same bytes: on to the successor, unless it made the whole way. */
  #goesOn(frame: Frame): Addressed[] {
    return frame.hop + 1 === hops(this.world) ? [] : [this.#toSuccessor({ ...frame, hop: frame.hop + 1 })]
  }

  /** The chunk that a frame carries, when its place, length and hop are those that the schedule gives. */
  #chunkOf(frame: Frame, hopOf: (world: WorldRank, segment: number) => number): Chunk {
    const chunk = this.chunkOf(frame)
    if (frame.hop >= hops(this.world) || frame.hop !== hopOf(this.world, chunk.segment))
      throw malformed(frame, 'this segment does not come here at this hop')
    return chunk
  }

  #toSuccessor(frame: Frame): Addressed {
    const { rank, size } = this.world
    return { to: (rank + 1) % size, frame }
  }
}

/**
 * The manifests of the other members; partial sums of all segments but this member's; sums of all but that which is
 * completed here.
 */
function framesToCome(world: WorldRank, chunks: readonly Chunk[]): number {
  if (world.size === 1) return 0
  let frames = hops(world)
  for (const { segment } of chunks)
    frames += Number(segment !== ownSegment(world)) + Number(segment !== completedSegment(world))
  return frames
}

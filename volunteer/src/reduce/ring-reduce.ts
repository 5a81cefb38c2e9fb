// The ring all-reduce of one step as a machine of events: frames in, frames out, no I/O, no clock (schedule.ts has the
// source). The volunteer drives it with links, the simulation with shuffled and repeated frames. Every chunk is
// forwarded as soon as it was added, so that hops overlap; in the all-gather its bytes go on unchanged, so that all
// members decode equal bytes. What frames hold is the business of step-sum.ts: here is only how they travel.
import { type Frame, type FrameType, GridError, type Manifest } from '@starling-grid/protocol'
import type { Feedback } from '../codec/encoding.ts'
import { combine } from '../codec/numbers.ts'
import { allFinite } from '../floats.ts'
import {
  type Chunk,
  completedSegment,
  hops,
  manifestHop,
  ownSegment,
  partialHop,
  reducedHop,
  type World,
} from './schedule.ts'
import { malformed, type ReduceProgress, type StepReduceOptions, unexpected } from './step-reduce.ts'
import { StepSumBuilder } from './step-sum.ts'

export type RingReduceOptions = StepReduceOptions

/** What a member knows of one chunk; it only ever grows. */
const CHUNK = {
  empty: 0,
  /** partial sum came before this member's contribution and waits in the sum */
  early: 1,
  /** own contribution is in and on its way to the successor */
  forwarded: 2,
  whole: 3,
} as const

/** @example for (const frame of reduce.contribute(gradient, manifest)) await link.send(packFrame(frame)) */
export class RingReduce {
  readonly #world: World
  readonly #sum: StepSumBuilder
  readonly #states: Uint8Array

  constructor(options: RingReduceOptions) {
    this.#world = options.world
    this.#sum = new StepSumBuilder(options, (chunks) => framesToCome(options.world, chunks))
    this.#states = new Uint8Array(this.#sum.chunks.all.length)
  }

  /** All sums and all manifests are here. */
  get done(): boolean {
    return this.#sum.done
  }

  get progress(): ReduceProgress {
    return this.#sum.progress
  }

  /** Places from which frames are to come. */
  get waitsFor(): number[] {
    const { rank: index, size } = this.#world
    const { received, expected } = this.progress
    return received < expected ? [(index + size - 1) % size] : []
  }

  /** Σ over the members, equal bytes on all of them. Only when done. */
  get sum(): Float32Array {
    return this.#sum.sum
  }

  /** In ring order. Only when done. */
  get manifests(): readonly Manifest[] {
    return this.#sum.manifests
  }

  /**
   * Adds this member's contribution of one bucket, once, as soon as it is known: `gradient` is the whole vector, of
   * which the bucket's run is final. `feedback`: read, and its `next` written, of encodings that lose something; the
   * same for all buckets of a step. `encoded`: its runs that leave as they are (leaving-runs.ts), as bytes instead of
   * floats. Returns what the successor gets, in order; the rest is as with `contribute`.
   */
  contributeBucket(
    bucket: number,
    gradient: Float32Array,
    feedback?: Feedback,
    encoded: readonly Uint8Array[] = [],
  ): Frame[] {
    const { own, chunks } = this.#sum
    const range = own.put(bucket, gradient, feedback)
    const payloads = encoded.values()
    if (this.#world.size > 1) return chunks.of(bucket).flatMap((chunk) => this.#contributeChunk(chunk, payloads))
    this.#sum.values.set(own.values.subarray(range.start, range.end), range.start)
    own.residual?.fill(0, range.start, range.end) // alone, nothing is encoded
    return []
  }

  /**
   * Adds what is left of this member's contribution, and its manifest, once. Neither the gradient may change nor the
   * frames' payloads until the reduce is over: they are views, not copies. Returns what the successor gets, in order.
   * @throws GridError 'gradient-not-finite' (the gradient, or a sum that overflowed), 'message-malformed' or
   * 'message-too-large' (the manifest); the reduce is over then
   */
  contribute(gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Frame[] {
    const left = (): Frame[] =>
      this.#sum.own.left.flatMap((bucket) => this.contributeBucket(bucket, gradient, feedback))
    const [own, frames] = this.#sum.contribute(manifest, left)
    return this.#world.size === 1 ? [] : [own, ...frames]
  }

  /**
   * Takes a frame from the predecessor, in any order, also before `contribute`; repeated frames change nothing. Returns
   * what goes on to the successor. A frame that throws changes nothing either.
   * @throws GridError 'message-malformed', 'message-unexpected', 'message-too-large' or 'gradient-not-finite'
   */
  accept(frame: Frame): Frame[] {
    this.#sum.requireStep(frame)
    switch (frame.type) {
      case 'partial':
        return this.#acceptPartial(frame)
      case 'reduced':
        return this.#acceptReduced(frame)
      case 'manifest':
        return this.#acceptManifest(frame)
      default:
        throw unexpected(`a reduce takes partial, reduced and manifest frames, got ${frame.type}`)
    }
  }

  #contributeChunk(chunk: Chunk, encoded: Iterator<Uint8Array, undefined>): Frame[] {
    if (chunk.segment !== ownSegment(this.#world))
      return this.#states[chunk.index] === CHUNK.early ? [this.#add(chunk)] : []
    this.#states[chunk.index] = CHUNK.forwarded
    const { value } = encoded.next()
    return [this.#chunkFrame('partial', 0, chunk, this.#sum.leaving(chunk, value))]
  }

  #acceptPartial(frame: Frame): Frame[] {
    const chunk = this.#chunkOf(frame, partialHop)
    if (this.#states[chunk.index] !== CHUNK.empty) return []
    this.#sum.decode(frame, this.#sum.in(chunk))
    const added = this.#sum.own.has(chunk.bucket) ? [this.#add(chunk)] : []
    if (added.length === 0) this.#states[chunk.index] = CHUNK.early
    this.#sum.came()
    return added
  }

  /** Adds this member's contribution to the received partial sum and forwards it. */
  #add(chunk: Chunk): Frame {
    const sum = this.#sum.in(chunk)
    combine('sum', sum, this.#sum.ownIn(chunk))
    if (!allFinite(sum))
      throw new GridError(
        'gradient-not-finite',
        `the sum overflowed to NaN or infinity in bucket ${chunk.bucket}, floats ${chunk.offset} to ${chunk.offset + chunk.floats}`,
      )
    const completed = chunk.segment === completedSegment(this.#world)
    const payload = this.#sum.travelling(chunk, completed)
    this.#states[chunk.index] = completed ? CHUNK.whole : CHUNK.forwarded
    return completed
      ? this.#chunkFrame('reduced', 0, chunk, payload)
      : this.#chunkFrame('partial', partialHop(this.#world, chunk.segment) + 1, chunk, payload)
  }

  #acceptReduced(frame: Frame): Frame[] {
    const chunk = this.#chunkOf(frame, reducedHop)
    const state = this.#states[chunk.index]
    if (state === CHUNK.whole) return []
    // Our contribution has not left yet, so no honest member has this sum: it is made up.
    if (state !== CHUNK.forwarded)
      throw unexpected(`a sum of bucket ${frame.bucket} at ${frame.offset} came before our contribution was in it`)
    this.#sum.decode(frame, this.#sum.in(chunk))
    this.#states[chunk.index] = CHUNK.whole
    this.#sum.came()
    return this.#goesOn(frame)
  }

  #acceptManifest(frame: Frame): Frame[] {
    const author = frame.bucket
    const isDue =
      author < this.#world.size && frame.hop < hops(this.#world) && frame.hop === manifestHop(this.#world, author)
    if (!isDue || frame.offset !== 0) throw malformed(frame, `no manifest of member ${author} comes here at this hop`)
    return this.#sum.takeManifest(author, frame) ? this.#goesOn(frame) : []
  }

  /** What every member gets, as the same bytes: on to the successor, unless it made the whole way. */
  #goesOn(frame: Frame): Frame[] {
    return frame.hop + 1 === hops(this.#world) ? [] : [{ ...frame, hop: frame.hop + 1 }]
  }

  /** The chunk that a frame carries, when its place, length and hop are those that the schedule gives. */
  #chunkOf(frame: Frame, hopOf: (world: World, segment: number) => number): Chunk {
    const chunk = this.#sum.chunkOf(frame)
    if (frame.hop >= hops(this.#world) || frame.hop !== hopOf(this.#world, chunk.segment))
      throw malformed(frame, 'this segment does not come here at this hop')
    return chunk
  }

  #chunkFrame(type: FrameType, hop: number, { bucket, offset }: Chunk, payload: Uint8Array): Frame {
    return this.#sum.frame(type, { bucket, hop, offset, payload })
  }
}

/**
 * The manifests of the other members; partial sums of all segments but this member's; sums of all but that which is
 * completed here.
 */
function framesToCome(world: World, chunks: readonly Chunk[]): number {
  if (world.size === 1) return 0
  let frames = hops(world)
  for (const { segment } of chunks)
    frames += Number(segment !== ownSegment(world)) + Number(segment !== completedSegment(world))
  return frames
}

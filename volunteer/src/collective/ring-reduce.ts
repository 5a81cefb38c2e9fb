// The ring all-reduce of one step as a machine of events: frames in, frames out, no I/O, no clock (schedule.ts has the source).
// The volunteer drives it with links, the simulation with shuffled and repeated frames. Every chunk is forwarded as soon as
// it was added, so that hops overlap; in the all-gather its bytes go on unchanged, so that all members decode equal bytes.
import { FRAME_PAYLOAD_BYTES, GridError, type Frame, type FrameType, type Manifest } from '@starling-grid/protocol'
import { allFinite } from '../floats.ts'
import type { Feedback } from './encoding.ts'
import { decodeManifest, encodeManifest } from './manifest.ts'
import { RingCodec } from './ring-codec.ts'
import { BUCKET_FLOATS, ChunkMap, completedSegment, evenBuckets, hops, manifestHop, ownSegment, partialHop, reducedHop, type Chunk, type RingPosition } from './schedule.ts'
import { checkOptions, malformed, OwnShare, type ReduceProgress, requireStep, type StepReduceOptions, unexpected } from './step-reduce.ts'

export type RingReduceOptions = StepReduceOptions

/** What a member knows of one chunk; it only ever grows. */
const CHUNK = {
  empty: 0,
  /** partial sum came before the own contribution and waits in `#sum` */
  early: 1,
  /** own contribution is in and on its way to the successor */
  forwarded: 2,
  whole: 3,
} as const

/** @example for (const frame of reduce.contribute(gradient, manifest)) await link.send(packFrame(frame)) */
export class RingReduce {
  readonly #options: RingReduceOptions
  readonly #chunks: ChunkMap
  readonly #states: Uint8Array
  readonly #sum: Float32Array
  readonly #codec: RingCodec
  readonly #manifests: (Manifest | undefined)[]
  readonly #expected: number
  #received = 0
  readonly #own: OwnShare
  /** the own manifest is in, and with it the whole share */
  #complete = false

  constructor(options: RingReduceOptions) {
    const { position, length, buckets = evenBuckets(length, BUCKET_FLOATS), chunkBytes = FRAME_PAYLOAD_BYTES, encoding = 'f32' } = options
    checkOptions({ ...options, buckets })
    this.#options = options
    this.#codec = new RingCodec(encoding)
    this.#own = new OwnShare({ buckets, length, lossless: this.#codec.lossless })
    this.#chunks = new ChunkMap({ buckets, size: position.size, chunkFloats: this.#codec.chunkFloats(chunkBytes) })
    this.#states = new Uint8Array(this.#chunks.all.length)
    this.#sum = options.into ?? new Float32Array(length)
    this.#manifests = new Array<undefined>(position.size)
    this.#expected = this.#countExpected()
  }

  /** All sums and all manifests are here. */
  get done(): boolean {
    return this.#complete && this.#received === this.#expected
  }

  get progress(): ReduceProgress {
    return { received: this.#received, expected: this.#expected }
  }

  /** Σ over the members, equal bytes on all of them. Only when done. */
  get sum(): Float32Array {
    this.#requireDone()
    return this.#sum
  }

  /** In ring order. Only when done. */
  get manifests(): readonly Manifest[] {
    this.#requireDone()
    return this.#manifests.filter((manifest) => manifest !== undefined)
  }

  /**
   * Adds this member's share of one bucket, once, as soon as it is known: `gradient` is the whole vector, of which the bucket's
   * run is final. `feedback`: read, and its `next` written, of encodings that lose something; the same for all buckets of a step.
   * `encoded`: its runs that leave as they are (leaving-runs.ts), as bytes instead of floats. Returns what the successor gets, in
   * order; the rest is as with `contribute`.
   */
  contributeBucket(bucket: number, gradient: Float32Array, feedback?: Feedback, encoded: readonly Uint8Array[] = []): Frame[] {
    const range = this.#own.put(bucket, gradient, feedback)
    const payloads = encoded.values()
    if (this.#options.position.size > 1) return this.#chunks.all.flatMap((chunk) => (chunk.bucket === bucket ? this.#contributeChunk(chunk, payloads) : []))
    this.#sum.set((this.#own.values ?? gradient).subarray(range.start, range.end), range.start)
    this.#own.lost?.fill(0, range.start, range.end) // alone, nothing is encoded
    return []
  }

  /**
   * Adds what is left of this member's share, and its manifest, once. Neither the gradient may change nor the frames' payloads
   * until the reduce is over: they are views, not copies. Returns what the successor gets, in order.
   * @throws GridError 'gradient-not-finite' (the gradient, or a sum that overflowed), 'message-malformed' or
   * 'message-too-large' (the manifest); the reduce is over then
   */
  contribute(gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Frame[] {
    const { position } = this.#options
    if (this.#complete) throw new Error('internal: a member contributes once')
    const encoded = encodeManifest(manifest)
    const own = this.#frame('manifest', { bucket: position.index, hop: 0, offset: 0, payload: encoded })
    const frames = this.#own.left.flatMap((bucket) => this.contributeBucket(bucket, gradient, feedback))
    this.#manifests[position.index] = manifest
    this.#complete = true
    return position.size === 1 ? [] : [own, ...frames]
  }

  /**
   * Takes a frame from the predecessor, in any order, also before `contribute`; repeated frames change nothing. Returns what
   * goes on to the successor. A frame that throws changes nothing either.
   * @throws GridError 'message-malformed', 'message-unexpected', 'message-too-large' or 'gradient-not-finite'
   */
  accept(frame: Frame): Frame[] {
    requireStep(this.#options, frame)
    switch (frame.type) {
      case 'partial': return this.#acceptPartial(frame)
      case 'reduced': return this.#acceptReduced(frame)
      case 'manifest': return this.#acceptManifest(frame)
      default: throw unexpected(`a reduce takes partial, reduced and manifest frames, got ${frame.type}`)
    }
  }

  #contributeChunk(chunk: Chunk, encoded: Iterator<Uint8Array>): Frame[] {
    if (chunk.segment === ownSegment(this.#options.position)) {
      this.#states[chunk.index] = CHUNK.forwarded
      const { value } = encoded.next()
      const payload = value ? this.#own.putEncoded(chunk, value, this.#codec) : this.#encode(chunk, this.#own.values ?? this.#sum, false)
      return [this.#chunkFrame('partial', 0, chunk, payload)]
    }
    return this.#states[chunk.index] === CHUNK.early ? [this.#add(chunk)] : []
  }

  #acceptPartial(frame: Frame): Frame[] {
    const chunk = this.#chunkOf(frame, partialHop)
    if (this.#states[chunk.index] !== CHUNK.empty) return []
    this.#decode(frame, chunk)
    const added = this.#own.has(chunk.bucket) ? [this.#add(chunk)] : []
    if (added.length === 0) this.#states[chunk.index] = CHUNK.early
    this.#received++
    return added
  }

  /** Adds the own share to the partial sum that lies in `#sum`, and passes it on. */
  #add(chunk: Chunk): Frame {
    const { position } = this.#options
    const [sum, own] = [this.#sum, this.#own.values]
    for (let i = chunk.start, end = i + chunk.floats; i < end; i++) sum[i] = (sum[i] ?? 0) + (own?.[i] ?? 0)
    this.#requireFinite(chunk, 'the sum overflowed to')
    const completed = chunk.segment === completedSegment(position)
    const payload = this.#encode(chunk, sum, completed)
    this.#states[chunk.index] = completed ? CHUNK.whole : CHUNK.forwarded
    return completed ? this.#chunkFrame('reduced', 0, chunk, payload) : this.#chunkFrame('partial', partialHop(position, chunk.segment) + 1, chunk, payload)
  }

  #acceptReduced(frame: Frame): Frame[] {
    const chunk = this.#chunkOf(frame, reducedHop)
    const state = this.#states[chunk.index]
    if (state === CHUNK.whole) return []
    // Our share has not left yet, so nobody can know this sum: it is made up.
    if (state !== CHUNK.forwarded) throw unexpected(`a sum of bucket ${frame.bucket} at ${frame.offset} came before our share was in it`)
    this.#decode(frame, chunk)
    this.#states[chunk.index] = CHUNK.whole
    this.#received++
    const last = frame.hop + 1 === hops(this.#options.position)
    return last ? [] : [this.#chunkFrame('reduced', frame.hop + 1, chunk, frame.payload)]
  }

  #acceptManifest(frame: Frame): Frame[] {
    const { position } = this.#options
    const author = frame.bucket
    if (author >= position.size || frame.hop >= hops(position) || frame.hop !== manifestHop(position, author) || frame.offset !== 0)
      throw malformed(frame, `no manifest of member ${author} comes here at this hop`)
    if (this.#manifests[author] !== undefined) return []
    this.#manifests[author] = decodeManifest(frame.payload)
    this.#received++
    const last = frame.hop + 1 === hops(position)
    return last ? [] : [this.#frame('manifest', { bucket: author, hop: frame.hop + 1, offset: 0, payload: frame.payload })]
  }

  /** The chunk that a frame carries, when its place, length and hop are those that the schedule gives. */
  #chunkOf(frame: Frame, hopOf: (position: RingPosition, segment: number) => number): Chunk {
    const chunk = this.#chunks.at(frame)
    if (chunk === undefined) throw malformed(frame, 'no chunk begins there')
    const bytes = this.#codec.bytes(chunk.floats)
    if (frame.payload.byteLength !== bytes) throw malformed(frame, `this chunk has ${bytes} bytes, got ${frame.payload.byteLength}`)
    if (frame.hop >= hops(this.#options.position) || frame.hop !== hopOf(this.#options.position, chunk.segment))
      throw malformed(frame, 'this segment does not come here at this hop')
    return chunk
  }

  #countExpected(): number {
    const { position } = this.#options
    if (position.size === 1) return 0
    let expected = hops(position)
    for (const { segment } of this.#chunks.all)
      expected += Number(segment !== ownSegment(position)) + Number(segment !== completedSegment(position))
    return expected
  }

  #decode({ payload }: Frame, chunk: Chunk): void {
    this.#codec.decode(payload, this.#sum.subarray(chunk.start, chunk.start + chunk.floats))
    this.#requireFinite(chunk, 'the predecessor sent')
  }

  /** `complete`: the sum becomes what the others decode of it. */
  #encode({ start, floats }: Chunk, values: Float32Array, complete: boolean): Uint8Array {
    return this.#codec.encode(values.subarray(start, start + floats), this.#own.lost?.subarray(start, start + floats), complete)
  }

  #requireFinite(chunk: Chunk, what: string): void {
    if (allFinite(this.#sum, { start: chunk.start, end: chunk.start + chunk.floats })) return
    throw new GridError('gradient-not-finite', `${what} NaN or infinity in bucket ${chunk.bucket}, floats ${chunk.offset} to ${chunk.offset + chunk.floats}`)
  }

  #requireDone(): void {
    if (!this.done) throw new Error('internal: the reduce is not done')
  }

  #chunkFrame(type: FrameType, hop: number, { bucket, offset }: Chunk, payload: Uint8Array): Frame {
    return this.#frame(type, { bucket, hop, offset, payload })
  }

  #frame(type: FrameType, rest: Pick<Frame, 'bucket' | 'hop' | 'offset' | 'payload'>): Frame {
    return { type, generation: this.#options.generation, step: this.#options.step, ...rest }
  }
}

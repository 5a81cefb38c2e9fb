// The all-reduce of one step in two hops, as a machine of events like ring-reduce.ts: everybody sends each owner its part of the
// gradient, the owner adds the parts and sends the sum to all (DESIGN §4.1; the shape of hivemind's butterfly). The same bytes
// as in the ring. An owner sees each member's slice of its part, and refuses one that no honest member sends, by name.
import { FRAME_PAYLOAD_BYTES, type Frame, GridError, type Manifest } from '@starling-grid/protocol'
import { allFinite } from '../floats.ts'
import type { Feedback } from './encoding.ts'
import { decodeManifest, encodeManifest } from './manifest.ts'
import { RankFailure } from './rank-failure.ts'
import { RingCodec } from './ring-codec.ts'
import { BUCKET_FLOATS, type Chunk, ChunkMap, evenBuckets } from './schedule.ts'
import { farOutside, normOf } from './slice-norms.ts'
import { checkOptions, malformed, OwnShare, type ReduceProgress, requireStep, type StepReduceOptions, unexpected } from './step-reduce.ts'

export interface ButterflyOptions extends StepReduceOptions {
  /** by place: how many samples each member has, in proportion; absent: alike */
  readonly weights?: readonly number[]
  /** norm of a slice that does no harm, whatever others sent (slice-norms.ts); absent: none */
  readonly harmless?: () => number
}

/** A frame and the place of the member that gets it. */
export interface Addressed {
  readonly to: number
  readonly frame: Frame
}

/** @example for (const { to, frame } of reduce.contribute(gradient, manifest)) await links[to].send(packFrame(frame)) */
export class ButterflyReduce {
  readonly #options: ButterflyOptions
  readonly #self: number
  readonly #size: number
  readonly #codec: RingCodec
  readonly #chunks: ChunkMap
  readonly #own: OwnShare
  readonly #sum: Float32Array
  readonly #manifests: (Manifest | undefined)[]
  /** by place: slices of the own part, one after the other as its chunks are; made when the first of a member comes */
  readonly #slices: (Float32Array | undefined)[]
  /** own chunk → where it lies in a slice, and after the last chunk the floats of the whole part */
  readonly #startInSlice: Uint32Array
  /** chunk × place: it came from there */
  readonly #seen: Uint8Array
  /** bucket → slices of the own part of it that are still to come */
  readonly #missing: number[]
  readonly #expected: number
  #received = 0
  /** the own manifest is in, and with it the whole share */
  #complete = false

  constructor(options: ButterflyOptions) {
    const { position: { index, size }, length, buckets = evenBuckets(length, BUCKET_FLOATS), chunkBytes = FRAME_PAYLOAD_BYTES, encoding = 'f32' } = options
    checkOptions({ ...options, buckets })
    if (size < 2) throw new Error('internal: one member alone has nobody to exchange with')
    this.#options = options
    this.#self = index
    this.#size = size
    this.#codec = new RingCodec(encoding)
    this.#own = new OwnShare({ buckets, length, lossless: this.#codec.lossless })
    this.#chunks = new ChunkMap({ buckets, size, chunkFloats: this.#codec.chunkFloats(chunkBytes) })
    this.#sum = options.into ?? new Float32Array(length)
    this.#manifests = new Array<undefined>(size)
    this.#slices = new Array<undefined>(size)
    this.#seen = new Uint8Array(this.#chunks.all.length * size)
    this.#startInSlice = this.#layOutSlices()
    this.#missing = buckets.map((_, bucket) => (size - 1) * this.#ownChunks(bucket).length)
    const mine = this.#chunks.all.filter((chunk) => this.#isMine(chunk)).length
    this.#expected = (size - 1) * (mine + 1) + (this.#chunks.all.length - mine)
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

  /** In the order of places. Only when done. */
  get manifests(): readonly Manifest[] {
    this.#requireDone()
    return this.#manifests.filter((manifest) => manifest !== undefined)
  }

  /** One bucket of this member's share, once, as soon as it is final; all else is as with `contribute` and in ring-reduce.ts. */
  contributeBucket(bucket: number, gradient: Float32Array, feedback?: Feedback, encoded: readonly Uint8Array[] = []): Addressed[] {
    this.#own.put(bucket, gradient, feedback)
    const values = this.#own.values ?? gradient
    const others = this.#chunks.all.filter((chunk) => chunk.bucket === bucket && !this.#isMine(chunk))
    const slices = others.map((chunk, i) => {
      const bytes = encoded[i]
      const payload = bytes ? this.#own.putEncoded(chunk, bytes, this.#codec) : this.#encode(chunk, values, false)
      return { to: chunk.segment, frame: this.#chunkFrame('partial', chunk, payload) }
    })
    return [...slices, ...this.#completed(bucket)]
  }

  /**
   * Adds what is left of this member's share, and its manifest, once. Neither the gradient may change nor the frames' payloads
   * until the reduce is over: they are views, not copies.
   * @throws GridError 'gradient-not-finite' (the own gradient), 'message-malformed' or 'message-too-large' (the manifest);
   * RankFailure as `accept`. The reduce is over then
   */
  contribute(gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Addressed[] {
    if (this.#complete) throw new Error('internal: a member contributes once')
    const own = this.#frame('manifest', { bucket: this.#self, offset: 0, payload: encodeManifest(manifest) })
    const frames = this.#own.left.flatMap((bucket) => this.contributeBucket(bucket, gradient, feedback))
    this.#manifests[this.#self] = manifest
    this.#complete = true
    return [...this.#toAll(own), ...frames]
  }

  /**
   * Takes a frame of the member in place `from`, in any order, also before `contribute`; repeated frames change nothing.
   * @throws GridError 'message-malformed', 'message-unexpected', 'message-too-large' or 'gradient-not-finite': `from` sent what
   * does not fit, and nothing changed. RankFailure 'gradient-not-finite' or 'gradient-outlier': of all that came for a part,
   * what the member in place `rank` sent makes no sum; the reduce is over then
   */
  accept(frame: Frame, from: number): Addressed[] {
    requireStep(this.#options, frame)
    if (!(from >= 0 && from < this.#size) || from === this.#self || frame.hop !== 0) throw malformed(frame, `no frame of member ${from} comes here at this hop`)
    switch (frame.type) {
      case 'partial': return this.#acceptPartial(frame, from)
      case 'reduced': return this.#acceptReduced(frame, from)
      case 'manifest': return this.#acceptManifest(frame, from)
      default: throw unexpected(`a reduce takes partial, reduced and manifest frames, got ${frame.type}`)
    }
  }

  #acceptPartial(frame: Frame, from: number): Addressed[] {
    const chunk = this.#chunkOf(frame)
    if (!this.#isMine(chunk)) throw malformed(frame, `this part belongs to member ${chunk.segment}`)
    if (this.#hasCome(chunk, from)) return []
    this.#decode(frame, this.#sliceOf(chunk, from))
    this.#came(chunk, from)
    this.#missing[chunk.bucket] = (this.#missing[chunk.bucket] ?? 0) - 1
    return this.#own.has(chunk.bucket) ? this.#completed(chunk.bucket) : []
  }

  #acceptReduced(frame: Frame, from: number): Addressed[] {
    const chunk = this.#chunkOf(frame)
    if (chunk.segment !== from) throw malformed(frame, `this part belongs to member ${chunk.segment}, not to ${from}`)
    if (this.#hasCome(chunk, from)) return []
    // Our share has not left yet, so nobody can know this sum: it is made up.
    if (!this.#own.has(chunk.bucket)) throw unexpected(`a sum of bucket ${frame.bucket} at ${frame.offset} came before our share was in it`)
    this.#decode(frame, this.#sum.subarray(chunk.start, chunk.start + chunk.floats))
    this.#came(chunk, from)
    return []
  }

  #acceptManifest(frame: Frame, from: number): Addressed[] {
    if (frame.bucket !== from || frame.offset !== 0) throw malformed(frame, `member ${from} sends its own manifest and no other`)
    if (this.#manifests[from] !== undefined) return []
    this.#manifests[from] = decodeManifest(frame.payload)
    this.#received++
    return []
  }

  /** The sum of the own part of a bucket, once every slice of it is here: added in the order of places, whenever they came. */
  #completed(bucket: number): Addressed[] {
    if (this.#missing[bucket] !== 0) return []
    const chunks = this.#ownChunks(bucket)
    this.#judge(chunks)
    return chunks.flatMap((chunk) => {
      const sum = this.#add(chunk)
      return this.#toAll(this.#chunkFrame('reduced', chunk, this.#encode(chunk, sum, true)))
    })
  }

  #add(chunk: Chunk): Float32Array {
    const end = chunk.start + chunk.floats
    const into = this.#sum.subarray(chunk.start, end)
    for (let place = 0; place < this.#size; place++) {
      const slice = this.#contributionOf(place, chunk)
      if (place === 0) into.set(slice)
      else for (let i = 0; i < into.length; i++) into[i] = (into[i] ?? 0) + (slice[i] ?? 0)
    }
    if (!allFinite(into)) throw this.#blameLargest(chunk)
    return this.#sum
  }

  /** Each slice is finite. One that is beyond all others by far is a lie or a fault. */
  #judge(chunks: readonly Chunk[]): void {
    if (chunks.length === 0) return
    const norms = this.#normsOf(chunks)
    const { weights = norms.map(() => 1), harmless = () => 0 } = this.#options
    const outlier = farOutside({ norms, weights, self: this.#self, harmless })
    if (outlier === undefined) return
    throw new RankFailure(outlier.place, 'gradient-outlier', `sent a slice of bucket ${chunks[0]?.bucket} that is ${outlier.times.toPrecision(2)} times as long as the others let expect`)
  }

  /** All slices are finite, their sum is not: whoever sent the longest is the likeliest cause. */
  #blameLargest(chunk: Chunk): RankFailure {
    const norms = this.#normsOf([chunk]).map((norm, place) => (place === this.#self ? -1 : norm))
    return new RankFailure(norms.indexOf(Math.max(...norms)), 'gradient-not-finite', `sent the longest slice of bucket ${chunk.bucket}, whose sum overflowed`)
  }

  #normsOf(chunks: readonly Chunk[]): number[] {
    return Array.from({ length: this.#size }, (_, place) => Math.hypot(...chunks.map((chunk) => {
      const slice = this.#contributionOf(place, chunk)
      return normOf(slice, 0, slice.length)
    })))
  }

  #contributionOf(place: number, chunk: Chunk): Float32Array {
    if (place !== this.#self) return this.#sliceOf(chunk, place)
    return (this.#own.values ?? this.#sum).subarray(chunk.start, chunk.start + chunk.floats)
  }

  #sliceOf(chunk: Chunk, place: number): Float32Array {
    const slice = (this.#slices[place] ??= new Float32Array(this.#startInSlice.at(-1) ?? 0))
    const start = this.#startInSlice[chunk.index] ?? 0
    return slice.subarray(start, start + chunk.floats)
  }

  #layOutSlices(): Uint32Array {
    let end = 0
    return Uint32Array.from([...this.#chunks.all, undefined], (chunk) => {
      const start = end
      if (chunk !== undefined && this.#isMine(chunk)) end += chunk.floats
      return start
    })
  }

  #isMine({ segment }: Chunk): boolean {
    return segment === this.#self
  }

  #ownChunks(bucket: number): Chunk[] {
    return this.#chunks.all.filter((chunk) => chunk.bucket === bucket && this.#isMine(chunk))
  }

  #hasCome({ index }: Chunk, from: number): boolean {
    return this.#seen[index * this.#size + from] === 1
  }

  #came({ index }: Chunk, from: number): void {
    this.#seen[index * this.#size + from] = 1
    this.#received++
  }

  /** The chunk that a frame carries, when its place and length are those that the cut gives. */
  #chunkOf(frame: Frame): Chunk {
    const chunk = this.#chunks.at(frame)
    if (chunk === undefined) throw malformed(frame, 'no chunk begins there')
    const bytes = this.#codec.bytes(chunk.floats)
    if (frame.payload.byteLength !== bytes) throw malformed(frame, `this chunk has ${bytes} bytes, got ${frame.payload.byteLength}`)
    return chunk
  }

  #decode(frame: Frame, into: Float32Array): void {
    this.#codec.decode(frame.payload, into)
    if (!allFinite(into)) throw new GridError('gradient-not-finite', `a ${frame.type} frame holds NaN or infinity in bucket ${frame.bucket} from float ${frame.offset} on`)
  }

  /** `complete`: the sum becomes what the others decode of it. */
  #encode({ start, floats }: Chunk, values: Float32Array, complete: boolean): Uint8Array {
    return this.#codec.encode(values.subarray(start, start + floats), this.#own.lost?.subarray(start, start + floats), complete)
  }

  #toAll(frame: Frame): Addressed[] {
    return Array.from({ length: this.#size - 1 }, (_, i) => ({ to: (this.#self + 1 + i) % this.#size, frame }))
  }

  #requireDone(): void {
    if (!this.done) throw new Error('internal: the reduce is not done')
  }

  #chunkFrame(type: 'partial' | 'reduced', { bucket, offset }: Chunk, payload: Uint8Array): Frame {
    return this.#frame(type, { bucket, offset, payload })
  }

  #frame(type: Frame['type'], rest: Pick<Frame, 'bucket' | 'offset' | 'payload'>): Frame {
    return { type, generation: this.#options.generation, step: this.#options.step, hop: 0, ...rest }
  }
}

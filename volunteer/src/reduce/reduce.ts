// The all-reduce of one step as a machine of events: frames in, frames out, no I/O, no clock. Here is all that the ring
// (ring-reduce.ts) and the direct exchange (direct-reduce.ts) have in common, in the order of a step. This member's
// contribution enters bucket by bucket, and its chunks leave as frames. Frames of others join the sum or are refused,
// and the sum is whole. Each exchange adds which frame goes where; nothing here knows of hops.
import {
  FRAME_PAYLOAD_BYTES,
  type Frame,
  type FrameType,
  type GradientEncoding,
  GridError,
  type Manifest,
  ManifestSchema,
  MAX_FRAME_PAYLOAD_BYTES,
  MAX_MANIFEST_BYTES,
  parse,
  parseJson,
} from '@starling-grid/protocol'
import { type Feedback, withResidual } from '../codec/encoding.ts'
import { RingCodec } from '../codec/ring-codec.ts'
import { allFinite, type FloatRange } from '../floats.ts'
import { BUCKET_FLOATS, type Chunk, ChunkMap, evenBuckets, type WorldRank } from './schedule.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

export interface StepReduceOptions {
  readonly generation: number
  readonly step: number
  readonly world: WorldRank
  /** floats of the vector, equal on all members */
  readonly length: number
  /** payload bytes of one frame */
  readonly chunkBytes?: number
  /**
   * what members contribute one by one: runs that make up the vector, in any order, equal on all members; absent: even
   * ones
   */
  readonly buckets?: readonly FloatRange[]
  /** how sums travel, equal on all members; absent: f32 */
  readonly encoding?: GradientEncoding
  /** where the sum is built; a new array when absent. Holds no sum until `done` */
  readonly into?: Float32Array
  /** by rank: how many samples each member has, in proportion; absent: alike */
  readonly weights?: readonly number[]
  /** norm of a slice that does no harm, whatever others sent (slice-norms.ts); absent: none */
  readonly harmless?: () => number
}

/** Frames from other members: how far the reduce is. */
export interface ReduceProgress {
  readonly received: number
  readonly expected: number
}

/** A step's sum when it is whole: equal bytes on all members, and their manifests in the order of their ranks. */
export interface StepSum {
  readonly sum: Float32Array
  readonly manifests: readonly Manifest[]
}

/** A frame and the rank of the member that gets it. */
export interface Addressed {
  readonly to: number
  readonly frame: Frame
}

/**
 * @example for (const { to, frame } of reduce.contribute(gradient, manifest)) await links[to].send(packFrame(frame))
 */
export abstract class Reduce implements StepSum {
  protected readonly world: WorldRank
  protected readonly chunks: ChunkMap
  readonly #options: StepReduceOptions
  readonly #codec: RingCodec
  readonly #buckets: readonly FloatRange[]
  /** bucket → this member put it in */
  readonly #contributed: boolean[]
  /** the gradient, and what was lost of earlier ones; only the buckets that are in */
  #own: Float32Array | undefined
  #feedback: Feedback | undefined
  /** where the sum is built: sums that are not whole yet are seen here and nowhere else */
  readonly #sum: Float32Array
  readonly #manifests: (Manifest | undefined)[]
  readonly #expected: number
  #received = 0
  /** this member's manifest is in, and with it the whole contribution */
  #complete = false

  /** `expected`: frames that come from others in the whole step, given all chunks. */
  constructor(options: StepReduceOptions, expected: (chunks: readonly Chunk[]) => number) {
    const { world, length, chunkBytes = FRAME_PAYLOAD_BYTES, encoding = 'f32' } = options
    const { buckets = evenBuckets(length, BUCKET_FLOATS) } = options
    checkOptions({ ...options, buckets })
    this.#options = options
    this.world = world
    this.#codec = new RingCodec(encoding)
    this.chunks = new ChunkMap({ buckets, size: world.size, chunkFloats: this.#codec.chunkFloats(chunkBytes) })
    this.#buckets = buckets
    this.#contributed = buckets.map(() => false)
    this.#sum = options.into ?? new Float32Array(length)
    this.#manifests = new Array<undefined>(world.size)
    this.#expected = expected(this.chunks.all)
  }

  // This member's contribution.

  /**
   * Adds this member's contribution of one bucket, once, as soon as it is there. `gradient` is the whole vector, of
   * which the bucket's run is final. `feedback`: read, and its `next` written, of encodings that lose something; the
   * same for all buckets of a step. `encoded`: its runs that leave as they are (exchanges.ts), as bytes instead of
   * floats. The rest is as with `contribute`.
   * @throws GridError 'gradient-not-finite'
   */
  contributeBucket(
    bucket: number,
    gradient: Float32Array,
    feedback?: Feedback,
    encoded: readonly Uint8Array[] = [],
  ): Addressed[] {
    const range = this.#buckets[bucket]
    const { length } = this.#options
    if (range === undefined || this.hasOwn(bucket)) throw new Error(`internal: bucket ${bucket} is contributed once`)
    if (gradient.length !== length)
      throw new Error(`internal: the reduce has ${length} floats, the gradient ${gradient.length}`)
    if (!allFinite(gradient, range))
      throw new GridError('gradient-not-finite', 'expected a finite gradient of this member, got NaN or infinity')
    this.#contributed[bucket] = true
    if (!this.#codec.lossless) this.#feedback = feedback
    this.#own = addResidual(gradient, this.#feedback, range)
    return this.onContributed(bucket, encoded.values())
  }

  /**
   * Adds what is left of this member's contribution, and its manifest, once. Neither the gradient may change nor the
   * frames' payloads until the reduce is over: they are views, not copies.
   * @throws GridError 'gradient-not-finite' (the gradient, or a sum that overflowed), 'message-malformed' or
   * 'message-too-large' (the manifest); RankFailure as `accept`. The reduce is over then
   */
  contribute(gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Addressed[] {
    const { rank } = this.world
    if (this.#complete) throw new Error('internal: a member contributes once')
    const own = this.frame('manifest', { bucket: rank, offset: 0 }, encodeManifest(manifest))
    const frames = this.#buckets.flatMap((_, bucket) =>
      this.hasOwn(bucket) ? [] : this.contributeBucket(bucket, gradient, feedback),
    )
    this.#manifests[rank] = manifest
    this.#complete = true
    return [...this.ownManifest(own), ...frames]
  }

  /** This member's contribution of a bucket is in. */
  protected hasOwn(bucket: number): boolean {
    return this.#contributed[bucket] === true
  }

  /** This member's contribution of a run whose bucket is in. */
  protected ownIn({ start, floats }: Pick<Chunk, 'start' | 'floats'>): Float32Array {
    if (this.#own === undefined) throw new Error("internal: no bucket of this member's contribution is in")
    return this.#own.subarray(start, start + floats)
  }

  /** Without others its contribution is the sum, and nothing is encoded. */
  protected sumAlone(bucket: number): void {
    const { start, end } = this.#buckets[bucket] ?? { start: 0, end: 0 }
    this.#sum.set(this.ownIn({ start, floats: end - start }), start)
    this.#lostIn({ start, floats: end - start })?.fill(0)
  }

  // Chunks as they leave.

  /**
   * This member's contribution of a chunk as it leaves. `encoded`: it was encoded where it was computed, and what it
   * lost is kept there. @throws GridError 'gradient-not-finite'
   */
  protected leaving(chunk: Chunk, encoded: Uint8Array | undefined): Uint8Array {
    if (encoded === undefined) return this.#codec.encode(this.ownIn(chunk), this.#lostIn(chunk), false)
    this.#codec.requireFinite(encoded, chunk.floats)
    this.#lostIn(chunk)?.fill(0)
    return encoded
  }

  /**
   * The sum of a chunk as it travels. `complete`: it becomes what the others decode of it. @throws GridError
   * 'gradient-not-finite'
   */
  protected travelling(chunk: Chunk, complete: boolean): Uint8Array {
    return this.#codec.encode(this.sumIn(chunk), this.#lostIn(chunk), complete)
  }

  /** Where what encoding loses of a run in this step is written. */
  #lostIn({ start, floats }: Pick<Chunk, 'start' | 'floats'>): Float32Array | undefined {
    return this.#feedback?.next.subarray(start, start + floats)
  }

  /** `at`: a chunk; of a manifest the bucket is the rank of its author. */
  protected frame(type: FrameType, at: Pick<Frame, 'bucket' | 'offset'>, payload: Uint8Array, hop = 0): Frame {
    const { generation, step } = this.#options
    return { type, generation, step, bucket: at.bucket, hop, offset: at.offset, payload }
  }

  // Frames of others.

  /**
   * Takes a frame of the member of rank `from`, in any order, also before `contribute`; repeated frames change nothing.
   * Returns what goes on to others.
   * @throws GridError 'message-malformed', 'message-unexpected', 'message-too-large' or 'gradient-not-finite': `from`
   * sent what does not fit, and nothing changed. RankFailure 'gradient-not-finite' or 'gradient-outlier': of all that
   * came for a part, what the member of rank `rank` sent makes no sum. The reduce is over then
   */
  accept(frame: Frame, from: number): Addressed[] {
    const { generation, step } = this.#options
    if (frame.generation !== generation || frame.step !== step)
      throw unexpected(
        `expected step ${step} of generation ${generation}, got a frame of step ${frame.step} of ${frame.generation}`,
      )
    this.requireWay(frame, from)
    switch (frame.type) {
      case 'partial':
        return this.onPartial(frame, from)
      case 'reduced':
        return this.onReduced(frame, from)
      case 'manifest':
        return this.onManifest(frame, from)
      default:
        throw unexpected(`expected a partial, reduced or manifest frame, got ${frame.type}`)
    }
  }

  /**
   * The chunk that a frame carries, when its place and length are those that the cut gives. @throws GridError
   * 'message-malformed'
   */
  protected chunkOf(frame: Frame): Chunk {
    const chunk = this.chunks.at(frame)
    if (chunk === undefined) throw malformed(frame, 'no chunk begins there')
    const bytes = this.#codec.bytes(chunk.floats)
    if (frame.payload.byteLength !== bytes)
      throw malformed(frame, `this chunk has ${bytes} bytes, got ${frame.payload.byteLength}`)
    return chunk
  }

  /** @throws GridError 'message-malformed' or 'gradient-not-finite' */
  protected decode(frame: Frame, into: Float32Array): void {
    this.#codec.decode(frame.payload, into)
    if (!allFinite(into))
      throw new GridError(
        'gradient-not-finite',
        `expected a finite ${frame.type} frame, got NaN or infinity in bucket ${frame.bucket}, ` +
          `floats ${frame.offset} to ${frame.offset + into.length}`,
      )
  }

  /** False when it is here already. @throws GridError 'message-malformed' or 'message-too-large' */
  protected takeManifest(author: number, { payload }: Frame): boolean {
    if (this.#manifests[author] !== undefined) return false
    this.#manifests[author] = decodeManifest(payload)
    this.came()
    return true
  }

  /** A frame of what was not here came, and changed something. */
  protected came(): void {
    this.#received++
  }

  /** The numbers of a chunk in the sum. */
  protected sumIn({ start, floats }: Chunk): Float32Array {
    return this.#sum.subarray(start, start + floats)
  }

  // The sum.

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

  /** In the order of ranks. Only when done. */
  get manifests(): readonly Manifest[] {
    this.#requireDone()
    return this.#manifests.filter((manifest) => manifest !== undefined)
  }

  #requireDone(): void {
    if (!this.done) throw new Error('internal: the reduce is not done')
  }

  // What each exchange adds.

  /** Ranks from which frames are to come. */
  abstract get waitsFor(): number[]

  /** `encoded`: of its chunks that leave as they are, in their order; fewer: the others are encoded here. */
  protected abstract onContributed(bucket: number, encoded: Iterator<Uint8Array, undefined>): Addressed[]

  /** To the members that get this member's manifest from it. */
  protected abstract ownManifest(frame: Frame): Addressed[]

  /**
   * Around the ring there is one sender, of which the caller made sure (frame-fate.ts). @throws GridError
   * 'message-malformed'
   */
  protected requireWay(_frame: Frame, _from: number): void {}

  protected abstract onPartial(frame: Frame, from: number): Addressed[]
  protected abstract onReduced(frame: Frame, from: number): Addressed[]
  protected abstract onManifest(frame: Frame, from: number): Addressed[]
}

/** Gradient + residual, in the memory where what is lost of it will stand. */
function addResidual(gradient: Float32Array, feedback: Feedback | undefined, { start, end }: FloatRange): Float32Array {
  if (feedback === undefined) return gradient
  withResidual(
    gradient.subarray(start, end),
    feedback.residual.subarray(start, end),
    feedback.next.subarray(start, end),
  )
  return feedback.next
}

/** @throws GridError 'message-malformed' or 'message-too-large': what peers would refuse does not leave */
function encodeManifest(manifest: Manifest): Uint8Array {
  return requireSmall(new TextEncoder().encode(JSON.stringify(parse(ManifestSchema, manifest, 'own manifest'))))
}

/** @throws GridError 'message-malformed' or 'message-too-large' */
function decodeManifest(bytes: Uint8Array): Manifest {
  const text = new TextDecoder().decode(requireSmall(bytes))
  return parse(ManifestSchema, parseJson(text, MAX_MANIFEST_BYTES, 'a manifest'), 'manifest')
}

function requireSmall(bytes: Uint8Array): Uint8Array {
  if (bytes.byteLength <= MAX_MANIFEST_BYTES) return bytes
  throw new GridError(
    'message-too-large',
    `expected a manifest of at most ${MAX_MANIFEST_BYTES} bytes, got ${bytes.byteLength}`,
  )
}

function checkOptions({
  world: { rank, size },
  length,
  chunkBytes = FLOAT_BYTES,
  buckets,
  into,
}: StepReduceOptions & { readonly buckets: readonly FloatRange[] }): void {
  if (!(Number.isInteger(rank) && rank >= 0 && rank < size))
    throw new Error(`internal: no member ${rank} among ${size}`)
  if (!(chunkBytes > 0 && chunkBytes <= MAX_FRAME_PAYLOAD_BYTES && chunkBytes % FLOAT_BYTES === 0))
    throw new Error(`internal: a chunk is a positive number of whole floats in a frame, got ${chunkBytes} bytes`)
  if (!tiles(buckets, length)) throw new Error(`internal: the buckets do not make up ${length} floats`)
  if (into !== undefined && into.length !== length)
    throw new Error(`internal: the sum has ${length} floats, its array ${into.length}`)
}

function tiles(buckets: readonly FloatRange[], length: number): boolean {
  const inOrder = [...buckets].sort((a, b) => a.start - b.start)
  const isTiled = inOrder.every(
    ({ start, end }, i) => Number.isInteger(end) && end > start && start === (inOrder[i - 1]?.end ?? 0),
  )
  return isTiled && (inOrder.at(-1)?.end ?? 0) === length
}

export function unexpected(message: string): GridError {
  return new GridError('message-unexpected', message)
}

export function malformed(frame: Frame, message: string): GridError {
  return new GridError(
    'message-malformed',
    `${frame.type} frame at bucket ${frame.bucket}, float ${frame.offset}, hop ${frame.hop}: ${message}`,
  )
}

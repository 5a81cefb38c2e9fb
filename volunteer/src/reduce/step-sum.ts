// The sum of one step while it is built, for either algorithm: its chunks, the member's contribution and the received
// parts. Turns chunks and manifests into frames and back, with every check that both algorithms share. Ring and direct
// exchange add which frame goes where (ring-reduce.ts, direct-reduce.ts); nothing here knows of hops.
import { FRAME_PAYLOAD_BYTES, type Frame, type FrameType, GridError, type Manifest } from '@starling-grid/protocol'
import { RingCodec } from '../codec/ring-codec.ts'
import { allFinite } from '../floats.ts'
import { decodeManifest, encodeManifest } from './manifest.ts'
import { BUCKET_FLOATS, type Chunk, ChunkMap, evenBuckets } from './schedule.ts'
import {
  checkOptions,
  malformed,
  OwnContribution,
  type ReduceProgress,
  type StepReduceOptions,
  type StepSum,
  unexpected,
} from './step-reduce.ts'

export class StepSumBuilder implements StepSum {
  readonly chunks: ChunkMap
  readonly own: OwnContribution
  /** where the sum is built: sums that are not whole yet are seen here and nowhere else */
  readonly values: Float32Array
  readonly #options: StepReduceOptions
  readonly #codec: RingCodec
  readonly #manifests: (Manifest | undefined)[]
  readonly #expected: number
  #received = 0
  /** this member's manifest is in, and with it the whole contribution */
  #complete = false

  /** `expected`: frames that come from others in the whole step, given all chunks. */
  constructor(options: StepReduceOptions, expected: (chunks: readonly Chunk[]) => number) {
    const {
      world: { size },
      length,
      buckets = evenBuckets(length, BUCKET_FLOATS),
      chunkBytes = FRAME_PAYLOAD_BYTES,
      encoding = 'f32',
    } = options
    checkOptions({ ...options, buckets })
    this.#options = options
    this.#codec = new RingCodec(encoding)
    this.own = new OwnContribution({ buckets, length, lossless: this.#codec.lossless })
    this.chunks = new ChunkMap({ buckets, size, chunkFloats: this.#codec.chunkFloats(chunkBytes) })
    this.values = options.into ?? new Float32Array(length)
    this.#manifests = new Array<undefined>(size)
    this.#expected = expected(this.chunks.all)
  }

  /** All sums and all manifests are here. */
  get done(): boolean {
    return this.#complete && this.#received === this.#expected
  }

  get progress(): ReduceProgress {
    return { received: this.#received, expected: this.#expected }
  }

  get sum(): Float32Array {
    this.#requireDone()
    return this.values
  }

  get manifests(): readonly Manifest[] {
    this.#requireDone()
    return this.#manifests.filter((manifest) => manifest !== undefined)
  }

  /**
   * The frame of this member's manifest, and after it the part of the share that `rest` adds: only then is the share
   * complete.
   * @throws GridError 'message-malformed' or 'message-too-large' (the manifest), or what `rest` throws
   */
  contribute<T>(manifest: Manifest, rest: () => T): readonly [own: Frame, frames: T] {
    const { rank: index } = this.#options.world
    if (this.#complete) throw new Error('internal: a member contributes once')
    const own = this.frame('manifest', { bucket: index, hop: 0, offset: 0, payload: encodeManifest(manifest) })
    const frames = rest()
    this.#manifests[index] = manifest
    this.#complete = true
    return [own, frames]
  }

  /** A frame of what was not here came, and changed something. */
  came(): void {
    this.#received++
  }

  /** False when it is here already. @throws GridError 'message-malformed' or 'message-too-large' */
  takeManifest(author: number, { payload }: Frame): boolean {
    if (this.#manifests[author] !== undefined) return false
    this.#manifests[author] = decodeManifest(payload)
    this.came()
    return true
  }

  /** @throws GridError 'message-unexpected' */
  requireStep(frame: Frame): void {
    const { generation, step } = this.#options
    if (frame.generation !== generation || frame.step !== step)
      throw unexpected(
        `expected step ${step} of generation ${generation}, got a frame of step ${frame.step} of ${frame.generation}`,
      )
  }

  /**
   * The chunk that a frame carries, when its place and length are those that the cut gives. @throws GridError
   * 'message-malformed'
   */
  chunkOf(frame: Frame): Chunk {
    const chunk = this.chunks.at(frame)
    if (chunk === undefined) throw malformed(frame, 'no chunk begins there')
    const bytes = this.#codec.bytes(chunk.floats)
    if (frame.payload.byteLength !== bytes)
      throw malformed(frame, `this chunk has ${bytes} bytes, got ${frame.payload.byteLength}`)
    return chunk
  }

  /** @throws GridError 'message-malformed' or 'gradient-not-finite' */
  decode(frame: Frame, into: Float32Array): void {
    this.#codec.decode(frame.payload, into)
    if (!allFinite(into))
      throw new GridError(
        'gradient-not-finite',
        `expected a finite ${frame.type} frame, got NaN or infinity in bucket ${frame.bucket}, ` +
          `floats ${frame.offset} to ${frame.offset + into.length}`,
      )
  }

  /**
   * This member's contribution of a chunk as it leaves, `encoded` when it was encoded where it was computed. @throws
   * GridError
   * 'gradient-not-finite'
   */
  leaving(chunk: Chunk, encoded: Uint8Array | undefined): Uint8Array {
    return encoded === undefined
      ? this.#encode(chunk, this.own.values, false)
      : this.own.putEncoded(chunk, encoded, this.#codec)
  }

  /**
   * The sum of a chunk as it travels. `complete`: it becomes what the others decode of it. @throws GridError
   * 'gradient-not-finite'
   */
  travelling(chunk: Chunk, complete: boolean): Uint8Array {
    return this.#encode(chunk, this.values, complete)
  }

  /** The numbers of a chunk in the sum. */
  in({ start, floats }: Chunk): Float32Array {
    return this.values.subarray(start, start + floats)
  }

  /** This member's contribution of a chunk, when its bucket is in. */
  ownIn({ start, floats }: Chunk): Float32Array {
    return this.own.values.subarray(start, start + floats)
  }

  frame(type: FrameType, rest: Pick<Frame, 'bucket' | 'hop' | 'offset' | 'payload'>): Frame {
    return { type, generation: this.#options.generation, step: this.#options.step, ...rest }
  }

  #encode({ start, floats }: Chunk, values: Float32Array, complete: boolean): Uint8Array {
    return this.#codec.encode(
      values.subarray(start, start + floats),
      this.own.residual?.subarray(start, start + floats),
      complete,
    )
  }

  #requireDone(): void {
    if (!this.done) throw new Error('internal: the reduce is not done')
  }
}

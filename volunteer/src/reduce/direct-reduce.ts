// The all-reduce of one step in two hops. Each member sends each owner its part of the gradient; the owner adds the
// parts and sends the sum to all (as hivemind does). The same bytes as in the ring. An owner sees each member's slice
// of its part, and refuses one that no honest member sends, by name.
import type { Frame } from '@starling-grid/protocol'
import { combine } from '../codec/numbers.ts'
import { allFinite } from '../floats.ts'
import { RankFailure } from './rank-failure.ts'
import { type Addressed, malformed, Reduce, type StepReduceOptions, unexpected } from './reduce.ts'
import type { Chunk, WorldRank } from './schedule.ts'
import { farOutside, normOf } from './slice-norms.ts'

export class DirectReduce extends Reduce {
  readonly #weights: readonly number[]
  readonly #harmless: () => number
  /**
   * by rank: slices of this member's part, one after the other as its chunks are; made when the first of a member
   * comes
   */
  readonly #slices: (Float32Array | undefined)[]
  /** own chunk → where it lies in a slice, and after the last chunk the floats of the whole part */
  readonly #startInSlice: Uint32Array
  /** chunk × rank: it came from there */
  readonly #seen: Uint8Array
  /** bucket → missing slices of this member's part */
  readonly #missing = new Map<number, number>()
  /** by rank: frames that came from there and were not here */
  readonly #received: number[]

  constructor(options: StepReduceOptions) {
    const { size } = options.world
    if (size < 2) throw new Error('internal: a single member has no partner for an exchange')
    super(options, (chunks) => framesToCome(options.world, chunks))
    const { weights = new Array<number>(size).fill(1), harmless = () => 0 } = options
    this.#weights = weights
    this.#harmless = harmless
    this.#received = new Array<number>(size).fill(0)
    this.#slices = new Array<undefined>(size)
    this.#seen = new Uint8Array(this.chunks.all.length * size)
    this.#startInSlice = this.#layOutSlices()
    for (const chunk of this.chunks.all)
      if (this.#isMine(chunk)) this.#missing.set(chunk.bucket, (this.#missing.get(chunk.bucket) ?? 0) + size - 1)
  }

  /** Each sends a manifest, slices of this member's part, the sums of theirs. */
  get waitsFor(): number[] {
    const { all } = this.chunks
    const mine = all.filter((chunk) => this.#isMine(chunk)).length
    const isWhole = (rank: number): boolean =>
      this.#received[rank] === 1 + mine + all.filter(({ segment }) => segment === rank).length
    return this.#received.flatMap((_, rank) => (rank === this.world.rank || isWhole(rank) ? [] : [rank]))
  }

  protected onContributed(bucket: number, encoded: Iterator<Uint8Array, undefined>): Addressed[] {
    const others = this.chunks.of(bucket).filter((chunk) => !this.#isMine(chunk))
    const slices = others.map((chunk) => ({
      to: chunk.segment,
      frame: this.frame('partial', chunk, this.leaving(chunk, encoded.next().value)),
    }))
    return [...slices, ...this.#completed(bucket)]
  }

  protected ownManifest(frame: Frame): Addressed[] {
    return this.#toAll(frame)
  }

  protected override requireWay(frame: Frame, from: number): void {
    if (!(from >= 0 && from < this.world.size) || from === this.world.rank || frame.hop !== 0)
      throw malformed(frame, `no frame of member ${from} comes here at this hop`)
  }

  protected onPartial(frame: Frame, from: number): Addressed[] {
    const chunk = this.chunkOf(frame)
    if (!this.#isMine(chunk)) throw malformed(frame, `this part belongs to member ${chunk.segment}`)
    if (this.#hasCome(chunk, from)) return []
    this.decode(frame, this.#sliceOf(chunk, from))
    this.#came(chunk, from)
    this.#missing.set(chunk.bucket, (this.#missing.get(chunk.bucket) ?? 0) - 1)
    return this.hasOwn(chunk.bucket) ? this.#completed(chunk.bucket) : []
  }

  protected onReduced(frame: Frame, from: number): Addressed[] {
    const chunk = this.chunkOf(frame)
    if (chunk.segment !== from) throw malformed(frame, `this part belongs to member ${chunk.segment}, not to ${from}`)
    if (this.#hasCome(chunk, from)) return []
    // Our contribution has not left yet, so no honest member has this sum: it is made up.
    if (!this.hasOwn(chunk.bucket))
      throw unexpected(
        `expected a sum with this member's contribution, got bucket ${frame.bucket} at ${frame.offset} without it`,
      )
    this.decode(frame, this.sumIn(chunk))
    this.#came(chunk, from)
    return []
  }

  protected onManifest(frame: Frame, from: number): Addressed[] {
    if (frame.bucket !== from || frame.offset !== 0)
      throw malformed(frame, `member ${from} sends its own manifest and no other`)
    if (this.takeManifest(from, frame)) this.#countFrom(from)
    return []
  }

  /**
   * The sum of this member's part of a bucket, once every slice of it arrived: added in the order of places, whenever
   * they came.
   */
  #completed(bucket: number): Addressed[] {
    if (this.#missing.get(bucket) !== 0) return []
    const chunks = this.#ownChunks(bucket)
    this.#judge(chunks)
    return chunks.flatMap((chunk) => {
      this.#add(chunk)
      return this.#toAll(this.frame('reduced', chunk, this.travelling(chunk, true)))
    })
  }

  #add(chunk: Chunk): void {
    const sum = this.sumIn(chunk)
    sum.set(this.#contributionOf(0, chunk))
    for (let rank = 1; rank < this.world.size; rank++) combine('sum', sum, this.#contributionOf(rank, chunk))
    if (!allFinite(sum)) throw this.#blameLargest(chunk)
  }

  /** Each slice is finite. One that is beyond all others by far is a lie or a fault. */
  #judge(chunks: readonly Chunk[]): void {
    if (chunks.length === 0) return
    const norms = this.#normsOf(chunks)
    const outlier = farOutside({ norms, weights: this.#weights, self: this.world.rank, harmless: this.#harmless })
    if (outlier === undefined) return
    throw new RankFailure(
      outlier.rank,
      'gradient-outlier',
      `sent a slice of bucket ${chunks[0]?.bucket} whose norm is ${outlier.times.toPrecision(2)} times that ` +
        'expected from the others',
    )
  }

  /** All slices are finite, their sum is not: the sender of the longest is the likeliest cause. */
  #blameLargest(chunk: Chunk): RankFailure {
    const norms = this.#normsOf([chunk]).map((norm, rank) => (rank === this.world.rank ? -1 : norm))
    return new RankFailure(
      norms.indexOf(Math.max(...norms)),
      'gradient-not-finite',
      `sent the longest slice of bucket ${chunk.bucket}, whose sum overflowed`,
    )
  }

  #normsOf(chunks: readonly Chunk[]): number[] {
    return Array.from({ length: this.world.size }, (_, rank) =>
      Math.hypot(
        ...chunks.map((chunk) => {
          const slice = this.#contributionOf(rank, chunk)
          return normOf(slice, 0, slice.length)
        }),
      ),
    )
  }

  #contributionOf(rank: number, chunk: Chunk): Float32Array {
    return rank === this.world.rank ? this.ownIn(chunk) : this.#sliceOf(chunk, rank)
  }

  #sliceOf(chunk: Chunk, rank: number): Float32Array {
    const slice = this.#slices[rank] ?? new Float32Array(this.#startInSlice.at(-1) ?? 0)
    this.#slices[rank] = slice
    const start = this.#startInSlice[chunk.index] ?? 0
    return slice.subarray(start, start + chunk.floats)
  }

  #layOutSlices(): Uint32Array {
    let end = 0
    return Uint32Array.from([...this.chunks.all, undefined], (chunk) => {
      const start = end
      if (chunk !== undefined && this.#isMine(chunk)) end += chunk.floats
      return start
    })
  }

  #isMine({ segment }: Chunk): boolean {
    return segment === this.world.rank
  }

  #ownChunks(bucket: number): Chunk[] {
    return this.chunks.of(bucket).filter((chunk) => this.#isMine(chunk))
  }

  #hasCome({ index }: Chunk, from: number): boolean {
    return this.#seen[index * this.world.size + from] === 1
  }

  #came({ index }: Chunk, from: number): void {
    this.#seen[index * this.world.size + from] = 1
    this.came()
    this.#countFrom(from)
  }

  #countFrom(rank: number): void {
    this.#received[rank] = (this.#received[rank] ?? 0) + 1
  }

  #toAll(frame: Frame): Addressed[] {
    return Array.from({ length: this.world.size - 1 }, (_, i) => ({
      to: (this.world.rank + 1 + i) % this.world.size,
      frame,
    }))
  }
}

/** The manifests of the other members, their slices of this member's part, and the sums of all other parts. */
function framesToCome({ rank, size }: WorldRank, chunks: readonly Chunk[]): number {
  const mine = chunks.filter(({ segment }) => segment === rank).length
  return (size - 1) * (mine + 1) + (chunks.length - mine)
}

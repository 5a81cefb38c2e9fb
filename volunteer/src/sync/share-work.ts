// A member at its share of one step: computes it piece by piece, adds the gradients up, and says when it falls behind.
// Which blocks are whose is decided elsewhere (share.ts); this file only carries it out.
import type { BlockId, CancelTimer, Clock } from '@starling-grid/protocol'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import type { EarlyRanges } from '../graph/executor.ts'
import type { MemberCore, MemberInput } from './member-state.ts'
import { blockMsNow, isBehind, pieceOf, plannedMs, type ShareState } from './share-pace.ts'
import { type ShareResult, ShareSum } from './share-sum.ts'
import { nextBlocksOf } from './share.ts'

/** ms between looks at a share that takes its time */
const LOOK_MS = 100
/** ms between two calls for help: one round of moves is over by then */
const CALL_MS = 500

/** Pieces of a share's gradient that leave as soon as each is final. */
export interface EarlyBuckets extends Pick<EarlyRanges, 'ranges' | 'encode'> {
  onFinal(index: number, gradient: Float32Array, encoded?: readonly Uint8Array[]): void
}

export interface ShareWorkParts {
  readonly clock: Clock
  readonly core: MemberCore
  readonly compute: Compute
  readonly batches: Batches
  tell(input: MemberInput): void
  /** Σ gradients of guests, from the coordinator (A1) */
  guestSum(id: number): Promise<Float32Array>
  /** Takes pieces of the gradient as soon as each is final; undefined: all at once. */
  bucketsOf(gen: number, step: number): EarlyBuckets | undefined
}

interface StepOrder {
  readonly gen: number
  readonly step: number
}

export class ShareWork {
  readonly #parts: ShareWorkParts
  /** of the step under way, until it is over (R3) or the next begins */
  #share: ShareSum | undefined
  #clock: ShareClock | undefined
  /** ms per block of the last piece: a member that got slower knows it at its next share */
  #lastBlockMs = 0
  #resume: () => void = () => undefined
  /** of guests, until it is in a share */
  #guest: { readonly id: number; readonly sum: Float32Array } | undefined

  constructor(parts: ShareWorkParts) {
    this.#parts = parts
  }

  /** Σ gradients of the share of the step under way, whole as soon as `compute` resolved. */
  get gradient(): Float32Array {
    if (this.#share === undefined) throw new Error('internal: no share is under way')
    return this.#share.gradient
  }

  /** Others may have handed blocks over, or no member waits for another any more. */
  resumed = (): void => this.#resume()

  /** R3: the generation is over. A computation that still runs ends without an effect. */
  halt(): void {
    this.#share?.end()
    this.#clock?.stop()
    this.#share = undefined
    this.#guest = undefined
    this.#resume()
  }

  /** Σ gradients of the share into `gradient`. Undefined: the generation ended before. */
  compute = async ({ gen, step }: StepOrder): Promise<ShareResult | undefined> => {
    const order = { gen, step }
    const { core, compute } = this.#parts
    this.#share?.end() // its step is over, or this one would not have begun
    const share = new ShareSum(compute)
    this.#share = share
    const clock = new ShareClock(order, this.#parts)
    this.#clock = clock
    try {
      while (!share.isOver) {
        const blocks = nextBlocksOf(core, {
          ...order,
          most: pieceOf({
            blocks: clock.left,
            blockMs: this.#expectedBlockMs,
            gradientBytes: share.gradient.byteLength,
          }),
          blockMs: clock.blockMs,
        })
        if (blocks === 'over') return undefined
        if (blocks === 'sealed') return this.#finished(share)
        if (blocks === 'wait')
          await new Promise<void>((resolve) => {
            this.#resume = resolve
          })
        else await this.#add(share, blocks, clock)
      }
      return undefined
    } finally {
      clock.stop()
    }
  }

  /** A1. What cannot be fetched is not contributed: the coordinator takes it back when its generation closes. */
  async fetchGuest(gen: number, id: number): Promise<void> {
    const { core, guestSum, tell } = this.#parts
    const sum = await guestSum(id).catch(() => undefined)
    if (sum === undefined || core.ring?.gen !== gen) return
    if (this.#guest !== undefined) return // an earlier one waits for its share, which names its blocks already
    this.#guest = { id, sum }
    tell({ type: 'guest-fetched', gen, id })
  }

  get #expectedBlockMs(): number {
    const { batches, compute } = this.#parts
    return Math.max(this.#lastBlockMs, (1000 * batches.blockSamples) / Math.max(compute.samplesPerSecond, 1e-3))
  }

  async #add(share: ShareSum, blocks: readonly BlockId[], clock: ShareClock): Promise<void> {
    const batch = await this.#parts.batches.of(blocks)
    if (share.isOver) return // a ballot came while the samples were fetched
    clock.begin(blocks.length)
    await share.add({ blocks, batch }, this.#early(share, clock))
    if (!share.isOver) this.#lastBlockMs = clock.end()
  }

  /**
   * Buckets of the last piece: from the first of them on the share can neither lose blocks nor get any, so it is sealed
   * now.
   */
  #early(share: ShareSum, { order, left }: ShareClock): EarlyRanges | undefined {
    const { core, bucketsOf } = this.#parts
    const early = left === 0 ? bucketsOf(order.gen, order.step) : undefined
    if (early === undefined || nextBlocksOf(core, { ...order, most: 0, blockMs: this.#lastBlockMs }) !== 'sealed')
      return undefined
    // What is encoded cannot be added to: the share must be this piece and nothing else.
    const encode = share.isEmpty && core.ring?.flight?.guest === undefined ? early.encode : undefined
    this.#addGuest(share)
    return {
      ranges: early.ranges,
      ...(encode ? { encode } : {}),
      onFinal: (index, encoded) => bucketFinal(share, early, { index, encoded }),
    }
  }

  #finished(share: ShareSum): ShareResult {
    this.#addGuest(share)
    return share.finish()
  }

  /** Into the share, once, when it is sealed (A1). */
  #addGuest(share: ShareSum): void {
    const wanted = this.#parts.core.ring?.flight?.guest
    if (wanted === undefined || wanted.id !== this.#guest?.id) return
    share.addGuest(wanted, this.#guest.sum)
    this.#guest = undefined
  }
}

function bucketFinal(
  share: ShareSum,
  early: EarlyBuckets,
  { index, encoded }: { readonly index: number; readonly encoded: readonly Uint8Array[] | undefined },
): void {
  const range = early.ranges[index]
  if (range === undefined) return
  share.complete(range)
  early.onFinal(index, share.gradient, encoded)
}

/** Looks at the clock while a share is computed, and says `behind` when it is. */
class ShareClock {
  readonly order: StepOrder
  readonly #parts: ShareWorkParts
  readonly #beganAt: number
  readonly #stopLooking: CancelTimer
  readonly #plannedMs: number
  #calledAt = Number.NEGATIVE_INFINITY
  #pieceAt = 0
  #pieceBlocks = 0
  #blocks = 0
  #ms = 0

  constructor(order: StepOrder, parts: ShareWorkParts) {
    const planned = parts.core.ring?.plan.get(order.step)
    this.order = order
    this.#parts = parts
    this.#plannedMs = plannedMs((planned?.blocks.length ?? 0) * parts.batches.blockSamples, planned?.shares ?? [])
    this.#beganAt = parts.clock.now()
    this.#stopLooking = parts.clock.every(LOOK_MS, () => this.#look())
  }

  get left(): number {
    return this.#parts.core.ring?.flight?.todo.length ?? 0
  }

  /** of the pieces that are done */
  get blockMs(): number {
    return this.#blocks === 0 ? 0 : this.#ms / this.#blocks
  }

  begin(blocks: number): void {
    this.#pieceAt = this.#parts.clock.now()
    this.#pieceBlocks = blocks
  }

  /** ms for each block of the piece */
  end(): number {
    const ms = this.#parts.clock.now() - this.#pieceAt
    const perBlock = ms / Math.max(1, this.#pieceBlocks)
    this.#ms += ms
    this.#blocks += this.#pieceBlocks
    this.#pieceBlocks = 0
    this.#look()
    return perBlock
  }

  stop(): void {
    this.#stopLooking()
  }

  #look(): void {
    const now = this.#parts.clock.now()
    const state: ShareState = {
      elapsedMs: now - this.#beganAt,
      pieceMs: this.#pieceBlocks > 0 ? now - this.#pieceAt : 0,
      pieceBlocks: this.#pieceBlocks,
      left: this.left,
      blockMs: this.blockMs,
      plannedMs: this.#plannedMs,
    }
    if (now - this.#calledAt < CALL_MS || !isBehind(state)) return
    this.#calledAt = now
    this.#parts.tell({ type: 'behind', ...this.order, blockMs: blockMsNow(state) })
  }
}

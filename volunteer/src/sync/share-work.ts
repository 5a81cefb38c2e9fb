// A member at its share of one step: computes it piece by piece, adds the gradients up, and says when it falls behind. Which
// blocks are whose is decided elsewhere (share.ts); this file only carries it out.
import type { BlockId } from '@starling-grid/protocol'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import type { FloatRange } from '../floats.ts'
import type { BatchSums, EarlyRanges } from '../graph/executor.ts'
import type { MemberCore, MemberInput } from './member-state.ts'
import { nextBlocksOf } from './share.ts'
import { blockMsNow, isBehind, pieceOf, plannedMs, type ShareState } from './share-pace.ts'

/** ms between looks at a share that takes its time */
const LOOK_MS = 100
/** ms between two calls for help: one round of moves is over by then */
const CALL_MS = 500

export interface ShareWorkParts {
  readonly core: MemberCore
  readonly compute: Compute
  readonly batches: Batches
  tell(input: MemberInput): void
  /** Σ gradients of guests, from the coordinator (A1) */
  guestSum(id: number): Promise<Float32Array>
  /** Takes pieces of the gradient as soon as each is final; undefined: all at once. */
  bucketsOf(gen: number, step: number): EarlyRanges | undefined
}

export interface ShareResult {
  readonly blocks: readonly BlockId[]
  readonly samples: number
  readonly sums: BatchSums
  readonly finite: boolean
}

interface StepOrder {
  readonly gen: number
  readonly step: number
}

const NOTHING: ShareResult = { blocks: [], samples: 0, sums: { lossSum: 0, targets: 0, correct: 0 }, finite: true }

export class ShareWork {
  readonly #parts: ShareWorkParts
  /** Σ gradients of earlier pieces; made when a share first has more than one */
  #sum: Float32Array | undefined
  /** ms per block of the last piece: a member that got slower knows it at its next share */
  #lastBlockMs = 0
  #resume: () => void = () => undefined
  /** of guests, until it is in a share */
  #guest: { readonly id: number; readonly sum: Float32Array } | undefined

  constructor(parts: ShareWorkParts) {
    this.#parts = parts
  }

  /** Others may have handed blocks over, or nobody waits for anybody any more. */
  resumed = (): void => this.#resume()

  /** Σ gradients of the share into `compute.gradient`. Undefined: the generation ended before. */
  compute = async ({ gen, step }: StepOrder): Promise<ShareResult | undefined> => {
    const order = { gen, step }
    const { core, compute } = this.#parts
    const clock = new ShareClock(order, this.#parts)
    let share = NOTHING
    try {
      for (;;) {
        const blocks = nextBlocksOf(core, { ...order, most: pieceOf({ blocks: clock.left, blockMs: this.#expectedBlockMs, gradientBytes: compute.gradient.byteLength }), blockMs: clock.blockMs })
        if (blocks === 'over') return undefined
        if (blocks === 'sealed') return this.#finished(share)
        if (blocks === 'wait') await new Promise<void>((resolve) => (this.#resume = resolve))
        else share = await this.#add(share, blocks, clock)
      }
    } finally {
      clock.stop()
    }
  }

  /** A1. What cannot be fetched is not contributed: the coordinator takes it back when its generation closes. */
  async fetchGuest(gen: number, id: number): Promise<void> {
    const { core, guestSum, tell } = this.#parts
    const sum = await guestSum(id).catch(() => undefined)
    if (sum === undefined || core.ring?.gen !== gen) return
    this.#guest = { id, sum }
    tell({ type: 'guest-fetched', gen, id })
  }

  /** What guests computed that goes with this share, which is sealed. */
  #withGuest(share: ShareResult): ShareResult {
    const guest = this.#parts.core.ring?.flight?.guest
    if (guest === undefined) return share
    const { blocks, samples, targets, lossSum, correct } = guest
    return {
      ...share, blocks: [...share.blocks, ...blocks], samples: share.samples + samples,
      sums: { lossSum: share.sums.lossSum + lossSum, targets: share.sums.targets + targets, correct: share.sums.correct + correct },
    }
  }

  /** Into the sum of earlier pieces, once, when the share is sealed. */
  #addGuest(): void {
    const { core, compute } = this.#parts
    if (core.ring?.flight?.guest === undefined || core.ring.flight.guest.id !== this.#guest?.id) return
    this.#sum ??= new Float32Array(compute.gradient.length)
    addTo(this.#sum, this.#guest.sum)
    this.#guest = undefined
  }

  get #expectedBlockMs(): number {
    const { batches, compute } = this.#parts
    return Math.max(this.#lastBlockMs, (1000 * batches.blockSamples) / Math.max(compute.samplesPerSecond, 1e-3))
  }

  async #add(share: ShareResult, blocks: readonly BlockId[], clock: ShareClock): Promise<ShareResult> {
    const { batches, compute } = this.#parts
    const batch = await batches.of(blocks)
    this.#keep(share)
    clock.begin(blocks.length)
    const { sums, finite } = await compute.heldGradient(batch, this.#early(clock, share.blocks.length === 0))
    this.#lastBlockMs = clock.end()
    const { lossSum, targets, correct } = share.sums
    return {
      blocks: [...share.blocks, ...blocks], samples: share.samples + batch.samples, finite: share.finite && finite,
      sums: { lossSum: lossSum + sums.lossSum, targets: targets + sums.targets, correct: correct + sums.correct },
    }
  }

  /** Buckets of the last piece: from the first of them on the share can neither lose blocks nor get any, so it is sealed now. */
  #early({ order, left }: ShareClock, isWhole: boolean): EarlyRanges | undefined {
    const { core, compute, bucketsOf } = this.#parts
    const early = left === 0 ? bucketsOf(order.gen, order.step) : undefined
    if (early === undefined || nextBlocksOf(core, { ...order, most: 0, blockMs: this.#lastBlockMs }) !== 'sealed') return undefined
    // What is encoded cannot be added to: the share must be this piece and nothing else.
    const encode = isWhole && core.ring?.flight?.guest === undefined ? early.encode : undefined
    this.#addGuest()
    return { ranges: early.ranges, ...(encode ? { encode } : {}), onFinal: (index, encoded) => this.#bucketFinal(early, index, { gradient: compute.gradient, encoded }) }
  }

  #bucketFinal(early: EarlyRanges, index: number, { gradient, encoded }: { readonly gradient: Float32Array; readonly encoded: readonly Uint8Array[] | undefined }): void {
    const range = early.ranges[index]
    if (range === undefined) return
    if (this.#sum !== undefined) {
      addTo(gradient, this.#sum, range)
      this.#sum.fill(0, range.start, range.end) // not again with the rest
    }
    early.onFinal(index, encoded)
  }

  /** The executor overwrites the gradient: what is there so far goes aside. */
  #keep({ blocks }: ShareResult): void {
    const { gradient } = this.#parts.compute
    if (blocks.length === 0) return void this.#sum?.fill(0)
    this.#sum ??= new Float32Array(gradient.length)
    addTo(this.#sum, gradient)
  }

  #finished(share: ShareResult): ShareResult {
    const { gradient } = this.#parts.compute
    if (share.blocks.length === 0) {
      gradient.fill(0)
      this.#sum?.fill(0)
    }
    this.#addGuest()
    if (this.#sum !== undefined) addTo(gradient, this.#sum)
    return this.#withGuest(share)
  }
}

function addTo(sum: Float32Array, more: Float32Array, { start, end }: FloatRange = { start: 0, end: sum.length }): void {
  for (let i = start; i < end; i++) sum[i] = (sum[i] ?? 0) + (more[i] ?? 0)
}

/** Looks at the clock while a share is computed, and says `behind` when it is. */
class ShareClock {
  readonly order: StepOrder
  readonly #parts: ShareWorkParts
  readonly #beganAt = performance.now()
  readonly #timer: ReturnType<typeof setInterval>
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
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
  }

  get left(): number {
    return this.#parts.core.ring?.flight?.todo.length ?? 0
  }

  /** of the pieces that are done */
  get blockMs(): number {
    return this.#blocks === 0 ? 0 : this.#ms / this.#blocks
  }

  begin(blocks: number): void {
    this.#pieceAt = performance.now()
    this.#pieceBlocks = blocks
  }

  /** ms for each block of the piece */
  end(): number {
    const ms = performance.now() - this.#pieceAt
    const perBlock = ms / Math.max(1, this.#pieceBlocks)
    this.#ms += ms
    this.#blocks += this.#pieceBlocks
    this.#pieceBlocks = 0
    this.#look()
    return perBlock
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    const now = performance.now()
    const state: ShareState = {
      elapsedMs: now - this.#beganAt, pieceMs: this.#pieceBlocks > 0 ? now - this.#pieceAt : 0, pieceBlocks: this.#pieceBlocks, left: this.left, blockMs: this.blockMs, plannedMs: this.#plannedMs,
    }
    if (now - this.#calledAt < CALL_MS || !isBehind(state)) return
    this.#calledAt = now
    this.#parts.tell({ type: 'behind', ...this.order, blockMs: blockMsNow(state) })
  }
}

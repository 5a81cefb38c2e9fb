// The reduces of one generation: frames of the present and the next step find theirs. All others are refused.
import { type Exchange, GridError, type Frame, type GradientEncoding, type Manifest } from '@starling-grid/protocol'
import type { Feedback } from '../codec/encoding.ts'
import type { FloatRange } from '../floats.ts'
import { reduceOf } from './exchanges.ts'
import type { Addressed, Reduce, StepSum } from './reduce.ts'

export interface StepReducesOptions {
  readonly generation: number
  readonly rank: number
  readonly size: number
  /** floats of the gradient */
  readonly length: number
  /** absent: around the ring */
  readonly exchange?: Exchange
  /** by rank: the members' assignments of a step, in proportion; absent: alike */
  readonly weights?: readonly number[]
  /** of a step: norm of an assignment that does no harm, whatever others sent (reduce/slice-norms.ts) */
  readonly harmless?: (step: number) => number
  /** what members contribute one by one; absent: the reduce's own */
  readonly buckets?: readonly FloatRange[]
  /** absent: f32 */
  readonly encoding?: GradientEncoding
  /** payload bytes of a frame; absent: the reduce's own */
  readonly chunkBytes?: number
}

/** How far a member is with a step, as its frames tell. */
export interface StepStanding {
  /** frames that came */
  readonly received: number
  /** ranks from which more is to come */
  readonly waitsFor: number[]
}

export class StepReduces {
  readonly #options: StepReducesOptions
  /** step → its reduce; at most two, since no member is more than one step ahead */
  readonly #reduces = new Map<number, Reduce>()
  #step: number
  #whole: ((sum: StepSum) => void) | undefined

  /** `step`: the first step of the generation */
  constructor(options: StepReducesOptions, step: number) {
    this.#options = options
    this.#step = step
  }

  /** `feedback`: of encodings that lose something; the same all through a step */
  contribute(step: number, gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Addressed[] {
    const frames = this.at(step).contribute(gradient, manifest, feedback)
    this.#tellWhole()
    return frames
  }

  /**
   * `from`: the sender's rank, of which the caller made sure (frame-fate.ts); in a ring there is only one.
   * @throws GridError 'generation-stale', 'message-unexpected', or what `accept` of the reduces throws
   */
  accept(frame: Frame, from = this.#predecessor): Addressed[] {
    if (frame.generation !== this.#options.generation)
      throw new GridError(
        'generation-stale',
        `this is generation ${this.#options.generation}, got a frame of ${frame.generation}`,
      )
    if (frame.step < this.#step) return [] // a repeated frame of a step that is whole
    if (frame.step > this.#step + 1)
      throw new GridError('message-unexpected', `this is step ${this.#step}, got a frame of step ${frame.step}`)
    const frames = this.at(frame.step).accept(frame, from)
    this.#tellWhole()
    return frames
  }

  /** Resolves when every sum and manifest of the present step arrived; the next step is the present one then. */
  reduced(): Promise<StepSum> {
    return new Promise((resolve) => {
      this.#whole = resolve
      this.#tellWhole()
    })
  }

  /** The reduce of the present step when it is whole. */
  get finished(): StepSum | undefined {
    const reduce = this.#reduces.get(this.#step)
    return reduce?.done === true ? reduce : undefined
  }

  get progress(): Reduce['progress'] | undefined {
    return this.#reduces.get(this.#step)?.progress
  }

  /** Of the present step; of others it is not told. */
  standing(step: number): StepStanding {
    if (step !== this.#step) return { received: 0, waitsFor: [] }
    const reduce = this.at(step)
    return { received: reduce.progress.received, waitsFor: reduce.waitsFor }
  }

  /** When it is asked for; the next step is the present one then. */
  #tellWhole(): void {
    const { finished } = this
    if (finished === undefined || this.#whole === undefined) return
    this.#whole(finished)
    this.#whole = undefined
    this.#reduces.delete(this.#step)
    this.#step++
  }

  get #predecessor(): number {
    const { rank, size } = this.#options
    return (rank + size - 1) % size
  }

  /** The reduce of a step, for its buckets that come before the rest. */
  at(step: number): Reduce {
    const existing = this.#reduces.get(step)
    if (existing !== undefined) return existing
    const { rank, size, exchange = 'ring', harmless, ...shape } = this.#options
    const judged = harmless ? { harmless: () => harmless(step) } : {}
    const reduce = reduceOf(exchange, { ...shape, ...judged, step, world: { rank, size } })
    this.#reduces.set(step, reduce)
    return reduce
  }
}

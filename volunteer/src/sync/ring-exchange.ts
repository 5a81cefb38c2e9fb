// The reduces of one generation: frames of the present and the next step find their RingReduce; all others are refused.
import { GridError, type Frame, type GradientEncoding, type Manifest } from '@starling-grid/protocol'
import type { Feedback } from '../collective/encoding.ts'
import { RingReduce } from '../collective/ring-reduce.ts'
import type { FloatRange } from '../floats.ts'

export interface RingExchangeOptions {
  readonly generation: number
  readonly position: number
  readonly size: number
  /** floats of the gradient */
  readonly length: number
  /** what members contribute one by one (gradient-buckets.ts); absent: RingReduce's own */
  readonly buckets?: readonly FloatRange[]
  /** absent: f32 */
  readonly encoding?: GradientEncoding
}

export class RingExchange {
  readonly options: RingExchangeOptions
  /** step → its reduce; at most two, since nobody is more than one step ahead */
  readonly #reduces = new Map<number, RingReduce>()
  #step: number

  /** `step`: the first step of the generation */
  constructor(options: RingExchangeOptions, step: number) {
    this.options = options
    this.#step = step
  }

  /** `feedback`: of encodings that lose something; the same all through a step */
  contributeBucket(step: number, bucket: number, gradient: Float32Array, feedback?: Feedback): Frame[] {
    return this.#at(step).contributeBucket(bucket, gradient, feedback)
  }

  contribute(step: number, gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Frame[] {
    return this.#at(step).contribute(gradient, manifest, feedback)
  }

  /** @throws GridError 'generation-stale', 'message-unexpected', or what RingReduce.accept throws */
  accept(frame: Frame): Frame[] {
    if (frame.generation !== this.options.generation) throw new GridError('generation-stale', `this is generation ${this.options.generation}, got a frame of ${frame.generation}`)
    if (frame.step < this.#step) return [] // a repeated frame of a step that is whole
    if (frame.step > this.#step + 1) throw new GridError('message-unexpected', `this is step ${this.#step}, got a frame of step ${frame.step}`)
    return this.#at(frame.step).accept(frame)
  }

  /** The reduce of the present step when it is whole. */
  get finished(): RingReduce | undefined {
    const reduce = this.#reduces.get(this.#step)
    return reduce?.done === true ? reduce : undefined
  }

  get progress(): { readonly received: number; readonly expected: number } | undefined {
    return this.#reduces.get(this.#step)?.progress
  }

  /** The present step is applied: on to the next. */
  advance(): void {
    this.#reduces.delete(this.#step)
    this.#step++
  }

  #at(step: number): RingReduce {
    const known = this.#reduces.get(step)
    if (known !== undefined) return known
    const { generation, position, size, length, buckets, encoding } = this.options
    const reduce = new RingReduce({ generation, step, position: { index: position, size }, length, ...(buckets ? { buckets } : {}), ...(encoding ? { encoding } : {}) })
    this.#reduces.set(step, reduce)
    return reduce
  }
}

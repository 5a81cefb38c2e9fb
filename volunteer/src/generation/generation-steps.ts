// The steps of one generation as the exchange sees them: own assignments and the others' frames in, frames for others
// and whole sums out. Independent of ballots, links or parameters.
import type { Frame, Manifest } from '@starling-grid/protocol'
import type { Feedback } from '../codec/encoding.ts'
import type { Addressed } from '../reduce/direct-reduce.ts'
import type { StepSum } from '../reduce/step-reduce.ts'
import { type BucketOptions, StepReduces, type StepReducesOptions, type StepStanding } from './step-reduces.ts'

export interface GenerationStepsParts {
  /** the member of this rank gets this frame */
  forward(frame: Frame, to: number): void
  /** the sum of the present step is whole; its waiting callers get it next */
  onSum(sum: Float32Array): void
}

export class GenerationSteps {
  readonly #parts: GenerationStepsParts
  #exchange: StepReduces | undefined
  #waiting:
    | { readonly generation: number; readonly step: number; readonly resolve: (reduced: StepSum) => void }
    | undefined

  constructor(parts: GenerationStepsParts) {
    this.#parts = parts
  }

  /** Ready for the first frame of a generation; `step` is its first. */
  open(options: StepReducesOptions, step: number): void {
    this.#exchange = new StepReduces(options, step)
  }

  /** R3: what is under way is dropped. */
  halt(): void {
    this.#exchange = undefined
    this.#waiting = undefined
  }

  /** One bucket of this member's assignment, before the rest is computed. @throws GridError 'gradient-not-finite' */
  contributeBucket(step: number, bucket: number, gradient: Float32Array, options?: BucketOptions): void {
    this.#forward(this.#exchange?.contributeBucket(step, bucket, gradient, options) ?? [])
  }

  contribute(step: number, gradient: Float32Array, manifest: Manifest, feedback?: Feedback): void {
    this.#forward(this.#exchange?.contribute(step, gradient, manifest, feedback) ?? [])
    this.#checkFinished()
  }

  /** @throws GridError what RingExchange.accept throws */
  accept(frame: Frame, from?: number): void {
    this.#forward(this.#exchange?.accept(frame, from) ?? [])
    this.#checkFinished()
  }

  /** Resolves when every sum and manifest of the step arrived; never, when the generation ends before. */
  reduced = (generation: number, step: number): Promise<StepSum> =>
    new Promise((resolve) => {
      this.#waiting = { generation, step, resolve }
      this.#checkFinished()
    })

  /** What came of a step, and from which ranks more is to come. */
  standing(step: number): StepStanding {
    return this.#exchange?.standing(step) ?? { received: 0, waitsFor: [] }
  }

  #forward(frames: readonly Addressed[]): void {
    for (const { to, frame } of frames) this.#parts.forward(frame, to)
  }

  #checkFinished(): void {
    const reduce = this.#exchange?.finished
    const waiting = this.#waiting
    if (reduce === undefined || waiting === undefined || this.#exchange?.options.generation !== waiting.generation)
      return
    this.#parts.onSum(reduce.sum)
    this.#waiting = undefined
    this.#exchange.advance()
    waiting.resolve(reduce)
  }
}

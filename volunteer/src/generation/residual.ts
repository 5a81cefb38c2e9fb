// What encoding lost of this member's assignments so far (codec/ring-codec.ts). Step-coupled state: it belongs to
// one version and swaps together with it (R10). A member that comes by its version in another way starts without one:
// these losses are gone.
import type { StepRecord, VersionRef } from '@starling-grid/protocol'
import { type Feedback, startFeedback, swapped } from '../codec/encoding.ts'

/** Of a gradient and of a round's difference it has other units. */
type StepKind = StepRecord['kind']

export class Residual {
  #feedback: Feedback
  #of: { readonly version: VersionRef; readonly kind: StepKind } | undefined
  /** how often it changed */
  #residualEpoch = 0

  constructor(length: number) {
    this.#feedback = startFeedback(length)
  }

  /** For a step from this version. The same all through the step. */
  from(version: VersionRef, kind: StepKind): Feedback {
    if (this.#of?.version.id !== version.id || this.#of.kind !== kind) {
      this.#feedback.residual.fill(0)
      this.#residualEpoch += 2
      this.#of = { version, kind }
    }
    return this.#feedback
  }

  /**
   * Names it to an executor that keeps losses of its own (EncodeOrder): one more where it follows from the one before.
   */
  get residualEpoch(): number {
    return this.#residualEpoch
  }

  /**
   * R10: in one piece with the parameters. `isOwn`: this member's reduce made the sum, so `next` is whole, too. A sum
   * that was fetched (R7) is none that this member's residual belongs to.
   */
  swap(version: VersionRef, kind: StepKind, isOwn: boolean): void {
    if (isOwn) {
      this.#feedback = swapped(this.#feedback)
      this.#residualEpoch++
    }
    this.#of = isOwn ? { version, kind } : undefined
  }
}

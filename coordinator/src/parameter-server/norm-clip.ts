// A bound on how far one push can move the parameters: the running median of the norms that were accepted before it.
import { clipGlobalNorm } from '@starling-grid/shaders'

/** Norms remembered: some minutes of pushes, so that the bound follows the training. */
const REMEMBERED = 101
/** Norms needed before the median says anything. */
const ENOUGH = 9
/** Times the median that a push may have: honest batches of one model stay within 2–3. */
const FACTOR = 4

export class NormClip {
  readonly #norms: number[] = []

  /** Clips the mean gradient in place against the median and the job's own bound; returns its norm before. */
  clip(mean: Float32Array, clipNorm: number | undefined): number {
    const bound = Math.min(clipNorm ?? Number.POSITIVE_INFINITY, this.#bound())
    const norm = clipGlobalNorm(mean, bound)
    this.#remember(Math.min(norm, bound))
    return norm
  }

  #bound(): number {
    if (this.#norms.length < ENOUGH) return Number.POSITIVE_INFINITY
    const sorted = this.#norms.toSorted((a, b) => a - b)
    return FACTOR * (sorted[sorted.length >> 1] ?? Number.POSITIVE_INFINITY)
  }

  /** What was clipped counts as the bound: a stranger cannot raise the median by pushing ever more. */
  #remember(norm: number): void {
    this.#norms.push(norm)
    if (this.#norms.length > REMEMBERED) this.#norms.shift()
  }
}

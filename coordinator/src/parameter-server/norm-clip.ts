// A bound on how far one push can move the parameters: the running median of the norms that were accepted before it.

/** Norms remembered: some minutes of pushes, so that the bound follows the training. */
const REMEMBERED = 101
/** Norms needed before the median says anything. */
const ENOUGH = 9
/** Times the median that a push may have: honest batches of one model stay within 2–3. */
const FACTOR = 4
/** What PyTorch adds to the norm before dividing by it; as ring members clip. */
const NORM_EPSILON = 1e-6

/** What a gradient of this norm is multiplied by, so that its norm is at most `bound`: 1 when it is already. */
export function clipFactor(norm: number, bound: number): number {
  const factor = Math.fround(bound / (norm + NORM_EPSILON))
  return factor < 1 ? factor : 1
}

export class NormClip {
  readonly #norms: number[]

  /** `norms`: of pushes before, oldest first */
  constructor(norms: readonly number[] = []) {
    this.#norms = [...norms]
  }

  get norms(): readonly number[] {
    return this.#norms
  }

  /** The factor for a push whose mean gradient has this norm; the norm is remembered. */
  factorOf(norm: number): number {
    const bound = this.#bound()
    this.#remember(Math.min(norm, bound))
    return clipFactor(norm, bound)
  }

  #bound(): number {
    if (this.#norms.length < ENOUGH) return Number.POSITIVE_INFINITY
    const sorted = this.#norms.toSorted((a, b) => a - b)
    const median = sorted[sorted.length >> 1] ?? 0
    return median > 0 ? FACTOR * median : Number.POSITIVE_INFINITY // zeros bound nothing, or nothing would ever move again
  }

  /** What was clipped counts as the bound: a stranger cannot raise the median by pushing ever more. */
  #remember(norm: number): void {
    if (!Number.isFinite(norm)) return
    this.#norms.push(norm)
    if (this.#norms.length > REMEMBERED) this.#norms.shift()
  }
}

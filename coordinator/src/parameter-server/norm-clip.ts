// A bound on how far one push can move the parameters: the running median of the norms that were accepted before it.
import type { PushedGradient } from '@starling-grid/model'
import { Ascending } from '../ascending.ts'

/** ‖mean gradient‖ of a push, and ‖mean statistics‖ (running means and variances, which no optimizer touches). */
export interface PushNorms {
  readonly gradient: number
  readonly statistics: number
}

/** Of the means over its targets. */
export function normsOf({ squares }: PushedGradient, targets: number): PushNorms {
  const norm = (square: number): number => Math.sqrt(square) / Math.max(targets, 1)
  return { gradient: norm(squares.gradient), statistics: norm(squares.statistics) }
}

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

/**
 * How far a first step of plain descent may move the parameters: times their own norm, or 1 where they begin at zero.
 * Honest steps are far below.
 */
const FIRST_STEP = 10

export function firstBound(parameters: Float32Array, lr: number): number {
  let squares = 0
  for (const value of parameters) squares += value * value
  return (FIRST_STEP * Math.max(1, Math.sqrt(squares))) / lr
}

export class NormClip {
  readonly #norms: number[]
  readonly #ascending: Ascending
  readonly #first: number

  /** `norms`: of pushes before, oldest first; `first`: the bound while too few are known */
  constructor(norms: readonly number[] = [], first = Number.POSITIVE_INFINITY) {
    this.#norms = [...norms]
    this.#ascending = new Ascending(norms)
    this.#first = first
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
    if (this.#norms.length < ENOUGH) return this.#first
    return FACTOR * (this.#ascending.upperMedian() ?? this.#first)
  }

  /** What was clipped counts as the bound: a stranger cannot raise the median by pushing ever more. */
  #remember(norm: number): void {
    if (!Number.isFinite(norm) || norm === 0) return // zeros say nothing of how large gradients are
    this.#norms.push(norm)
    this.#ascending.add(norm)
    if (this.#norms.length > REMEMBERED) this.#ascending.remove(this.#norms.shift() ?? norm)
  }
}

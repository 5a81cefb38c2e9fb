// Mean, deviation, least and greatest of each channel in one pass that does not lose digits.
// Source: Welford (1962) for single values; Chan, Golub, LeVeque (1979) for a run of values at once.

export interface Summary {
  /** values of each channel */
  readonly count: number
  readonly mean: readonly number[]
  /** of the population: √(Σ(x − mean)² / count) */
  readonly deviation: readonly number[]
  readonly least: readonly number[]
  readonly greatest: readonly number[]
}

/** What is kept to go on later. */
export interface Moments {
  count: number
  readonly mean: Float64Array
  /** Σ(x − mean)² */
  readonly squares: Float64Array
  readonly least: Float64Array
  readonly greatest: Float64Array
}

/** As JSON. */
export type StoredMoments = { readonly [K in keyof Moments]: K extends 'count' ? number : readonly number[] }

interface ChannelRun {
  readonly channel: number
  /** values of the run */
  readonly size: number
  /** values of its channel before it */
  readonly before: number
}

/** Digits that are kept: f32 has no more. */
const DIGITS = 7

export class Statistics {
  readonly #moments: Moments

  constructor(channels: number, stored?: StoredMoments) {
    this.#moments = {
      count: stored?.count ?? 0,
      mean: Float64Array.from(stored?.mean ?? new Float64Array(channels)),
      squares: Float64Array.from(stored?.squares ?? new Float64Array(channels)),
      least: Float64Array.from(stored?.least ?? new Float64Array(channels).fill(Number.MAX_VALUE)),
      greatest: Float64Array.from(stored?.greatest ?? new Float64Array(channels).fill(-Number.MAX_VALUE)),
    }
  }

  /** x (samples, channels, …): some rows of a window of samples. */
  add(x: Uint8Array | Float32Array, rows: Uint32Array, elements: number): void {
    if (rows.length === 0) return
    const channels = this.#moments.mean.length
    const size = elements / channels
    if (size === 1) return this.#addRows(x, rows)
    for (let channel = 0; channel < channels; channel++) {
      let before = this.#moments.count
      for (const row of rows) {
        this.#addRun(x, row * elements + channel * size, { channel, size, before })
        before += size
      }
    }
    this.#moments.count += rows.length * size
  }

  /** Row by row over all channels: one division for a row. */
  #addRows(x: Uint8Array | Float32Array, rows: Uint32Array): void {
    const { mean, squares, least, greatest } = this.#moments
    const channels = mean.length
    for (const row of rows) {
      const share = 1 / ++this.#moments.count
      for (let c = 0, at = row * channels; c < channels; c++, at++) {
        const value = x[at] ?? 0
        const before = value - (mean[c] ?? 0)
        const now = (mean[c] ?? 0) + before * share
        mean[c] = now
        squares[c] = (squares[c] ?? 0) + before * (value - now)
        if (value < (least[c] ?? 0)) least[c] = value
        if (value > (greatest[c] ?? 0)) greatest[c] = value
      }
    }
  }

  /** A channel of one sample, of which `before` values were seen. */
  #addRun(x: Uint8Array | Float32Array, from: number, { channel, size, before }: ChannelRun): void {
    const { mean, squares, least, greatest } = this.#moments
    let [sum, low, high] = [0, x[from] ?? 0, x[from] ?? 0]
    for (let i = from; i < from + size; i++) {
      const value = x[i] ?? 0
      sum += value
      if (value < low) low = value
      else if (value > high) high = value
    }
    const centre = sum / size
    let spread = 0
    for (let i = from; i < from + size; i++) spread += ((x[i] ?? 0) - centre) ** 2
    const difference = centre - (mean[channel] ?? 0)
    const all = before + size
    mean[channel] = (mean[channel] ?? 0) + (difference * size) / all
    squares[channel] = (squares[channel] ?? 0) + spread + (difference * difference * before * size) / all
    least[channel] = Math.min(least[channel] ?? low, low)
    greatest[channel] = Math.max(greatest[channel] ?? high, high)
  }

  stored(): StoredMoments {
    const { count, mean, squares, least, greatest } = this.#moments
    return { count, mean: [...mean], squares: [...squares], least: [...least], greatest: [...greatest] }
  }

  /** With inputs multiplied by `scale`. */
  summary(scale: number): Summary {
    const { count, mean, squares, least, greatest } = this.#moments
    const rounded = (values: Float64Array): number[] =>
      Array.from(values, (value) => Number((value * scale).toPrecision(DIGITS)))
    return {
      count,
      mean: rounded(mean),
      deviation: rounded(squares.map((square) => Math.sqrt(square / Math.max(1, count)))),
      least: rounded(least),
      greatest: rounded(greatest),
    }
  }
}

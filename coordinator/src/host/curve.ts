// A curve of bounded length: its last points are all there, of older ones every second goes whenever there are too
// many. The newest point is always exact.

/** Points at most: more than a chart has pixels. */
export const MAX_POINTS = 2048
/** Points that are never thinned: points that were not sent to pages yet, and what the speed is measured over. */
export const WHOLE_POINTS = 256

export class Curve<T extends { readonly v: number }> {
  #points: T[] = []

  /** Ascending by v. */
  get points(): readonly T[] {
    return this.#points
  }

  has(v: number): boolean {
    return this.#points.some((point) => point.v === v)
  }

  add(point: T): void {
    this.#points.push(point)
    if (this.#points.length > MAX_POINTS) this.#thin()
  }

  /** Points above version v go. */
  truncate(v: number): void {
    this.#points = this.#points.filter((point) => point.v <= v)
  }

  replace(points: readonly T[]): void {
    this.#points = [...points]
  }

  #thin(): void {
    const old = this.#points.slice(0, -WHOLE_POINTS)
    this.#points = [...old.filter((_, i) => i % 2 === 0), ...this.#points.slice(-WHOLE_POINTS)]
  }
}

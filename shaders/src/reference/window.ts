// Where the cells of a sliding window fall on an axis: shared by convolution and pooling.

export interface WindowAxis {
  /** cells of the input */
  readonly size: number
  /** positions of the window */
  readonly outSize: number
  readonly stride: number
  readonly padding: number
}

/**
 * Positions `first` ≤ out < `end` at which cell `tap` of the window lies inside the input, at out·stride + tap −
 * padding.
 */
export function positionsInside(
  tap: number,
  { size, outSize, stride, padding }: WindowAxis,
): { first: number; end: number } {
  const first = Math.max(0, Math.ceil((padding - tap) / stride))
  const end = Math.min(outSize, Math.floor((size - 1 + padding - tap) / stride) + 1)
  return { first, end: Math.max(first, end) }
}

/** Input cells `first` ≤ cell < `end` that the window covers at position `out`. */
export function cellsInside(
  out: number,
  kernel: number,
  { size, stride, padding }: WindowAxis,
): { first: number; end: number } {
  const start = out * stride - padding
  return { first: Math.max(0, start), end: Math.min(size, start + kernel) }
}

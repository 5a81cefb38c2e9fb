// The loops that elementwise operators share.

export function mapElements(count: number, x: Float32Array, y: Float32Array, f: (value: number) => number): void {
  for (let i = 0; i < count; i++) y[i] = f(x[i] ?? 0)
}

/** dx = f(y, dy), for operators whose derivative can be read off their output. */
export function mapGradient(
  count: number,
  { y, dy, dx }: { y: Float32Array; dy: Float32Array; dx: Float32Array },
  f: (y: number, dy: number) => number,
): void {
  for (let i = 0; i < count; i++) dx[i] = f(y[i] ?? 0, dy[i] ?? 0)
}

/** dx = dy · slope(x), for the others. */
export function mapGradientOfInput(
  count: number,
  { x, dy, dx }: { x: Float32Array; dy: Float32Array; dx: Float32Array },
  slope: (x: number) => number,
): void {
  for (let i = 0; i < count; i++) dx[i] = (dy[i] ?? 0) * slope(x[i] ?? 0)
}

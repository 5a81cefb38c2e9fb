// Matrices as lists of their rows, and the two products that plain linear layers and convolutions are made of.

export function rowsOf(matrix: Float32Array, rows: number, columns: number): Float32Array[] {
  return Array.from({ length: rows }, (_, r) => matrix.subarray(r * columns, (r + 1) * columns))
}

export function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? 0)
  return sum
}

/** to += from · factor */
export function addScaled(to: Float32Array, from: Float32Array, factor: number): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] ?? 0) + (from[i] ?? 0) * factor
}

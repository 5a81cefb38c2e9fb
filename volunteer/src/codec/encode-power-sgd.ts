// PowerSGD: a gradient matrix M (rows × columns) travels as two thin ones, P (rows × r) and Q (columns × r), with M ≈
// P·Qᵀ. Both can be summed by an all-reduce. Vogels, Karimireddy and Jaggi, NeurIPS 2019, with their warm start and
// error feedback. Sums are in double precision and stored as f32: JavaScript fixes both, so all ranks compute equal
// bytes.
import { GridError, random32 } from '@starling-grid/protocol'

export interface Matrix {
  /** its first number in the vector; row by row from there */
  readonly start: number
  readonly rows: number
  readonly columns: number
}

export interface PowerSgdShape {
  /** in order and without overlap; numbers in none of them travel as they are */
  readonly matrices: readonly Matrix[]
  /** r: 1 to 4 are usual */
  readonly rank: number
}

/** Step-coupled state of the caller: swaps together with the version (rule R10). */
export interface PowerSgdState {
  /** right factors of all matrices, equal on all ranks */
  readonly q: Float32Array
  /** what earlier steps have not sent, this rank's own */
  readonly residual: Float32Array
}

/** One matrix over the whole vector, as square as can be, for vectors whose shapes do not matter. */
export function squareShape(length: number, rank: number): PowerSgdShape {
  const columns = Math.ceil(Math.sqrt(length))
  return { matrices: length === 0 ? [] : [{ start: 0, rows: Math.floor(length / columns), columns }], rank }
}

/** @example let state = startPowerSgd(shape, gradient.length, seed) // the same seed on all ranks */
export function startPowerSgd(shape: PowerSgdShape, length: number, seed: number): PowerSgdState {
  requireShape(shape, length)
  const random = random32(seed)
  return {
    q: Float32Array.from({ length: rightLength(shape) }, () => random() / 2 ** 31 - 1),
    residual: new Float32Array(length),
  }
}

export function leftLength({ matrices, rank }: PowerSgdShape): number {
  return matrices.reduce((sum, { rows }) => sum + rows * rank, 0)
}

export function rightLength({ matrices, rank }: PowerSgdShape): number {
  return matrices.reduce((sum, { columns }) => sum + columns * rank, 0)
}

/** @throws GridError 'usage' when matrices overlap, are out of order, or reach beyond the vector */
export function requireShape({ matrices, rank }: PowerSgdShape, length: number): void {
  if (!Number.isInteger(rank) || rank < 1)
    throw new GridError('usage', `expected a rank of 1 or more, a whole number, got ${rank}`)
  let free = 0
  for (const { start, rows, columns } of matrices) {
    const whole = [start, rows, columns].every(Number.isInteger) && rows > 0 && columns > 0
    if (!whole || start < free || start + rows * columns > length)
      throw new GridError(
        'usage',
        `expected matrices within numbers ${free} to ${length} of the vector, got ${rows} × ${columns} at ${start}`,
      )
    free = start + rows * columns
  }
}

/** P = M·Q for each matrix. */
export function leftFactors(shape: PowerSgdShape, vector: Float32Array, q: Float32Array): Float32Array {
  const p = new Float32Array(leftLength(shape))
  walk(shape, ({ start, rows, columns }, left, right) => {
    for (let row = 0; row < rows; row++)
      for (let k = 0; k < shape.rank; k++) {
        let sum = 0
        for (let column = 0; column < columns; column++)
          sum += (vector[start + row * columns + column] ?? 0) * (q[right + column * shape.rank + k] ?? 0)
        p[left + row * shape.rank + k] = sum
      }
  })
  return p
}

/** Q = Mᵀ·P for each matrix. */
export function rightFactors(shape: PowerSgdShape, vector: Float32Array, p: Float32Array): Float32Array {
  const { rank } = shape
  const sums = new Float64Array(rightLength(shape))
  walk(shape, ({ start, rows, columns }, left, right) => {
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++) {
        const value = vector[start + row * columns + column] ?? 0
        const place = right + column * rank
        for (let k = 0; k < rank; k++)
          sums[place + k] = (sums[place + k] ?? 0) + value * (p[left + row * rank + k] ?? 0)
      }
  })
  return Float32Array.from(sums)
}

/** Writes P·Qᵀ to the places of the matrices; other numbers stay. */
export function multiplyOut(
  shape: PowerSgdShape,
  { p, q }: { readonly p: Float32Array; readonly q: Float32Array },
  into: Float32Array,
): void {
  walk(shape, ({ start, rows, columns }, left, right) => {
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++) {
        let sum = 0
        for (let k = 0; k < shape.rank; k++)
          sum += (p[left + row * shape.rank + k] ?? 0) * (q[right + column * shape.rank + k] ?? 0)
        into[start + row * columns + column] = sum
      }
  })
}

/** Gram–Schmidt, column by column, in place. A column that depends on those before it becomes zeros. */
export function orthonormalize(shape: PowerSgdShape, p: Float32Array): void {
  walk(shape, ({ rows }, left) => {
    for (let k = 0; k < shape.rank; k++) {
      const before = norm(p, { left, rows, k, rank: shape.rank })
      for (let other = 0; other < k; other++) project(p, { left, rows, k, rank: shape.rank }, other)
      const after = norm(p, { left, rows, k, rank: shape.rank })
      const scale = after > DEPENDENT * before || after !== after ? 1 / after : 0
      for (let row = 0; row < rows; row++)
        p[left + row * shape.rank + k] = (p[left + row * shape.rank + k] ?? 0) * scale
    }
  })
}

/** What is left of a column's length when only f32 rounding errors are left of it. */
const DEPENDENT = 2 ** -20

interface Column {
  readonly left: number
  readonly rows: number
  readonly k: number
  readonly rank: number
}

function norm(p: Float32Array, { left, rows, k, rank }: Column): number {
  let sum = 0
  for (let row = 0; row < rows; row++) {
    const value = p[left + row * rank + k] ?? 0
    sum += value * value
  }
  return Math.sqrt(sum)
}

/** Takes the part along an earlier column of length one out of column k. */
function project(p: Float32Array, { left, rows, k, rank }: Column, other: number): void {
  let dot = 0
  for (let row = 0; row < rows; row++) dot += (p[left + row * rank + k] ?? 0) * (p[left + row * rank + other] ?? 0)
  for (let row = 0; row < rows; row++)
    p[left + row * rank + k] = (p[left + row * rank + k] ?? 0) - dot * (p[left + row * rank + other] ?? 0)
}

/** Each matrix with the first numbers of its factors. */
function walk({ matrices, rank }: PowerSgdShape, visit: (matrix: Matrix, left: number, right: number) => void): void {
  let [left, right] = [0, 0]
  for (const matrix of matrices) {
    visit(matrix, left, right)
    left += matrix.rows * rank
    right += matrix.columns * rank
  }
}

/** The numbers that are in no matrix, as runs [first, end). */
export function outside({ matrices }: PowerSgdShape, length: number): [first: number, end: number][] {
  const ends = matrices.map(({ start, rows, columns }) => start + rows * columns)
  const runs = [
    ...matrices.map(({ start }, i): [number, number] => [ends[i - 1] ?? 0, start]),
    [ends.at(-1) ?? 0, length] as [number, number],
  ]
  return runs.filter(([first, end]) => end > first)
}

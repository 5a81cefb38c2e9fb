// How a device holds the matrices of an imported model that stay as they are: each row in whole words of four bytes,
// first its values, then, of eight and four bits, an f32 scale for each group of neighbours. What is read is f32 again,
// and exact: a whole number times a scale is rounded once everywhere.

export type PackedStorage = 'f16' | 'int8' | 'int4'

/** Neighbours in a row that share a scale. */
export const SCALE_GROUP = 32
/** What is added to four bits, so that they are never negative. */
export const NIBBLE_ZERO = 8

export const STORED_BITS: Readonly<Record<PackedStorage, number>> = { f16: 16, int8: 8, int4: 4 }
const WORD_BITS = 32

export interface PackedRow {
  /** words of its values, two, four or eight to a word, the first in the lowest bits */
  readonly values: number
  /** words of its scales, behind them */
  readonly scales: number
  /** from one row to the next */
  readonly words: number
}

export function packedRow(columns: number, storage: PackedStorage): PackedRow {
  const values = Math.ceil((columns * STORED_BITS[storage]) / WORD_BITS)
  const scales = storage === 'f16' ? 0 : Math.ceil(columns / SCALE_GROUP)
  return { values, scales, words: values + scales }
}

/** IEEE half precision, in the low bits → its value. */
export function floatOfHalf(half: number): number {
  const [exponent, mantissa] = [(half >> 10) & 0x1f, half & 0x3ff]
  const sign = (half & 0x8000) === 0 ? 1 : -1
  if (exponent === 0) return sign * mantissa * 2 ** -24
  if (exponent === 0x1f) return mantissa === 0 ? sign * Infinity : NaN
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15)
}

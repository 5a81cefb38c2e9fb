// Walks that kernels share: over flat vectors in pieces, rows by four elements and tokens; and copies into panels.
import type { EmbeddingDims } from '../kernels.ts'
import type { FunctionWriter, Local } from './function.ts'
import { FLOAT_BYTES, type PieceWriter } from './pass.ts'
import { added, at, firstLanes, PANEL, storeFirst } from './products.ts'
import { f32, type F32, i32, type I32, type Int, v128, type V128 } from './values.ts'

export const VECTOR = 4
/** Floats of a piece of a walk over everything: 10 µs of work, which hides what it costs to take it. */
export const STREAM_PIECE = 8192

export function piecesOf(size: number, ofPiece: number): number {
  return Math.ceil(size / ofPiece)
}

/** The piece's part of 0 … count − 1, with blocks of `size`. */
export function partOf(
  w: PieceWriter,
  piece: I32,
  count: Int,
  size: number,
): { readonly start: I32; readonly end: I32 } {
  const start = w.int(i32.mul(piece, size))
  return { start, end: w.int(i32.min(i32.add(start, size), count)) }
}

/** Four elements at a time of a vector without rows; up to three behind its end are computed and mean nothing. */
export function forStream(w: PieceWriter, size: number, body: (element: I32) => void): void {
  const { start, end } = partOf(w, w.piece, i32.mul(w.samples, size), STREAM_PIECE)
  w.for(start, end, VECTOR, body)
}

/** Tokens of a piece. */
export const TOKENS_OF_PIECE = 64

/** body(place of a token, row of the table) for the tokens `ids` of a piece that the table has. */
export function forTokens(
  w: PieceWriter,
  { tokens, vocab, first = 0 }: EmbeddingDims,
  body: (place: I32, row: I32) => void,
): void {
  const { start, end } = partOf(w, w.piece, i32.mul(w.samples, tokens), TOKENS_OF_PIECE)
  w.for(start, end, 1, (place) => {
    const row = w.int(i32.sub(i32.load(w.at('ids', place)), first))
    w.if(i32.lessUnsigned(row, vocab), () => body(place, row))
  })
}

/** body(offset of four elements, how many of them there are, ones in those) of a row. */
export function forRow(
  f: FunctionWriter,
  count: Int,
  body: (element: I32, left: Int, mask: V128 | undefined) => void,
): void {
  const whole = i32.mul(i32.divUnsigned(count, VECTOR), VECTOR)
  f.for(0, whole, VECTOR, (element) => body(element, VECTOR, undefined))
  const rest = i32.remUnsigned(count, VECTOR)
  f.if(i32.notEqual(rest, 0), () => {
    const left = typeof count === 'number' ? count % VECTOR : f.int(rest)
    body(f.int(whole), left, f.variable(firstLanes(left)))
  })
}

/** Σ of a row's elements, of each of `values` by itself. */
export function sumRow(
  f: FunctionWriter,
  count: Int,
  values: readonly ((element: I32) => V128)[],
): readonly Local<'f32'>[] {
  const sums = values.map(() => f.variable(v128.constant(0)))
  forRow(f, count, (element, _, mask) => {
    for (const [i, value] of values.entries()) {
      const sum = at(sums, i)
      f.set(sum, v128.add(sum, mask ? v128.and(value(element), mask) : value(element)))
    }
  })
  return sums.map((sum) => f.variable(sumOfLanes(f, sum)))
}

export function sumOfLanes(f: FunctionWriter, vector: V128): F32 {
  const kept = f.variable(vector)
  return v128.lane(added(f, [kept, kept, kept, kept]), 0)
}

export function largestLane(f: FunctionWriter, vector: V128): F32 {
  const kept = f.variable(vector)
  return f32.max(f32.max(v128.lane(kept, 0), v128.lane(kept, 1)), f32.max(v128.lane(kept, 2), v128.lane(kept, 3)))
}

/** y[0 … count − 1] = value(element) */
export function fillRow(f: FunctionWriter, count: Int, to: I32, value: (element: I32) => V128): void {
  forRow(f, count, (element, left) => {
    const address = i32.add(to, i32.mul(element, FLOAT_BYTES))
    if (left === VECTOR) f.store(address, value(element))
    else storeFirst(f, address, value(element), left)
  })
}

/** element e of a row at `row` */
export function elementOf(row: I32, element: Int): I32 {
  return i32.add(row, i32.mul(element, FLOAT_BYTES))
}

export interface PackedRows {
  readonly to: I32
  readonly from: I32
  readonly steps: Int
  /** between two rows of `from` */
  readonly rowBytes: number
}

/** Eight columns of `steps` rows, side by side: a panel of the second factor of a product. */
export function packRows(f: FunctionWriter, { to, from, steps, rowBytes }: PackedRows): void {
  const [source, target] = [f.int(from), f.int(to)]
  f.for(0, steps, 1, () => {
    for (let j = 0; j < PANEL; j += VECTOR) f.store(target, v128.load(source, j * FLOAT_BYTES), j * FLOAT_BYTES)
    f.increase(source, rowBytes)
    f.increase(target, PANEL * FLOAT_BYTES)
  })
}

/** The same of eight rows of `steps` elements, turned; writes up to three steps more. */
export function packTurned(f: FunctionWriter, { to, from, steps, rowBytes }: PackedRows): void {
  const [source, target] = [f.int(from), f.int(to)]
  f.for(0, steps, VECTOR, () => {
    for (let j = 0; j < PANEL; j += VECTOR) {
      const turned = transposed(
        f,
        [0, 1, 2, 3].map((i) => f.variable(v128.load(source, (j + i) * rowBytes))),
      )
      for (const [i, vector] of turned.entries()) f.store(target, vector, (i * PANEL + j) * FLOAT_BYTES)
    }
    f.increase(source, VECTOR * FLOAT_BYTES)
    f.increase(target, VECTOR * PANEL * FLOAT_BYTES)
  })
}

/** Four rows of four, as four columns. */
export function transposed(f: FunctionWriter, rows: readonly V128[]): readonly V128[] {
  const [a, b, c, d] = [at(rows, 0), at(rows, 1), at(rows, 2), at(rows, 3)]
  const keep = (vector: V128) => f.variable(vector)
  const [lowAB, highAB] = [keep(v128.shuffle(a, b, 0, 4, 1, 5)), keep(v128.shuffle(a, b, 2, 6, 3, 7))]
  const [lowCD, highCD] = [keep(v128.shuffle(c, d, 0, 4, 1, 5)), keep(v128.shuffle(c, d, 2, 6, 3, 7))]
  return [
    v128.shuffle(lowAB, lowCD, 0, 1, 4, 5),
    v128.shuffle(lowAB, lowCD, 2, 3, 6, 7),
    v128.shuffle(highAB, highCD, 0, 1, 4, 5),
    v128.shuffle(highAB, highCD, 2, 3, 6, 7),
  ]
}

/** Bytes of a row of floats that begins where vectors do and meets no cache set as often as a power of two would. */
export function rowBytesFor(floats: number): number {
  const padded = Math.ceil(floats / VECTOR) * VECTOR
  return (padded % 64 === 0 ? padded + VECTOR : padded) * FLOAT_BYTES
}

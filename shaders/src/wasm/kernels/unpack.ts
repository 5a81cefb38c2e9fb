// Matrices that lie packed (packed.ts), as f32: whole, or the rows of tokens.
import type { EmbeddingDims, UnpackDims } from '../../kernels.ts'
import { packedRow, SCALE_GROUP } from '../../packed.ts'
import { matrix } from '../../recipe.ts'
import { elementOf, fillRow, forTokens, partOf, piecesOf, STREAM_PIECE, TOKENS_OF_PIECE } from '../loops.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, type WasmKernel } from '../pass.ts'
import { i32, type I32, v128, type V128 } from '../values.ts'

// packed (rows, words) → y (rows, columns)
export const unpackForward: WasmKernel<'unpack.forward'> = (dims) => {
  const { rows, columns, storage } = dims
  const { words } = packedRow(columns, storage)
  const ofPiece = Math.max(1, Math.floor(STREAM_PIECE / columns))
  return onePass(`unpack.forward ${storage}`, {
    constants: { rows, columns },
    bindings: [matrix('packed', 'read', rows, words), matrix('y', 'write', rows, columns)],
    pieces: () => piecesOf(rows, ofPiece),
    write(w) {
      const { start, end } = partOf(w, w.piece, rows, ofPiece)
      w.for(start, end, 1, (row) => unpackRow(w, dims, { from: row, to: w.int(w.at('y', i32.mul(row, columns))) }))
    },
  })
}

// ids (R,), packed (vocab, words) → y (R, channels)
export const unpackRows: WasmKernel<'unpack.rows'> = (dims, capacity) => {
  const { tokens, vocab, channels, first = 0, storage } = dims
  const { words } = packedRow(channels, storage)
  return onePass(`unpack.rows ${storage}`, {
    constants: { tokens, vocab, channels, first },
    bindings: [
      matrix('ids', 'read', capacity, tokens),
      matrix('packed', 'read', vocab, words),
      matrix('y', 'write', capacity * tokens, channels),
    ],
    pieces: (samples) => piecesOf(samples * tokens, TOKENS_OF_PIECE),
    write: (w) =>
      forTokens(w, dims, (place, row) =>
        unpackRow(w, tableOf(dims), { from: row, to: w.int(w.at('y', i32.mul(place, channels))) }),
      ),
  })
}

function tableOf({ vocab, channels, storage }: EmbeddingDims & Pick<UnpackDims, 'storage'>): UnpackDims {
  return { rows: vocab, columns: channels, storage }
}

/** `from`: the number of the row; `to`: where its values go */
function unpackRow(
  w: PieceWriter,
  { columns, storage }: UnpackDims,
  at: { readonly from: I32; readonly to: I32 },
): void {
  const { values, words } = packedRow(columns, storage)
  const row = w.int(w.at('packed', i32.mul(at.from, words)))
  if (storage === 'f16')
    return fillRow(w, columns, at.to, (c) => floatsOfHalves(w, v128.loadHalves(i32.add(row, i32.mul(c, 2)))))
  const bytesOfGroup = storage === 'int8' ? SCALE_GROUP : SCALE_GROUP / 2
  const quad = storage === 'int8' ? int8Quad : int4Quad
  const group = (number: I32, count: number): void => {
    const scale = w.variable(v128.loadSplat(elementOf(row, number), values * FLOAT_BYTES))
    const from = w.int(i32.add(row, i32.mul(number, bytesOfGroup)))
    const to = w.int(elementOf(at.to, i32.mul(number, SCALE_GROUP)))
    fillRow(w, count, to, (c) => v128.mul(v128.fromInt(quad(from, c)), scale))
  }
  const whole = Math.floor(columns / SCALE_GROUP)
  w.for(0, whole, 1, (number) => group(number, SCALE_GROUP))
  if (columns % SCALE_GROUP > 0) group(w.int(whole), columns % SCALE_GROUP)
}

/** Four whole numbers of a word: each is brought to the top of its lane, and then down with its sign. */
function int8Quad(from: I32, c: I32): V128 {
  const word = v128.loadSplat(i32.add(from, c))
  return v128.intShiftRightSigned(v128.intMul(word, v128.intConstant(2 ** 24, 2 ** 16, 2 ** 8, 1)), 24)
}

/** The highest of four bits is turned, which makes them a number with a sign. */
function int4Quad(from: I32, c: I32): V128 {
  const word = v128.xor(v128.loadSplat(i32.add(from, i32.shiftRightUnsigned(c, 1))), v128.intConstant(0x8888_8888))
  return v128.intShiftRightSigned(v128.intMul(word, v128.intConstant(2 ** 28, 2 ** 24, 2 ** 20, 2 ** 16)), 28)
}

/** Four halves, each in the low bits of a lane: moved to an f32's place they are 2¹¹² times too small. */
function floatsOfHalves(w: PieceWriter, halves: V128): V128 {
  const kept = w.variable(halves)
  const size = w.variable(v128.intShiftLeft(v128.and(kept, v128.intConstant(0x7fff)), 13))
  const sign = v128.intShiftLeft(v128.and(kept, v128.intConstant(0x8000)), 16)
  // infinity and NaN keep the largest exponent
  const beyond = v128.andNot(v128.intConstant(0x7f80_0000), v128.intLessUnsigned(size, v128.intConstant(0x7c00 << 13)))
  return v128.or(v128.or(v128.mul(size, v128.constant(2 ** 112)), beyond), sign)
}

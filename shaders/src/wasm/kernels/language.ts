// What published language models add: gated branches, scales, rotary positions, and attention with kept keys and
// values.
import type { CachedAttentionDims, RotaryDims } from '../../kernels.ts'
import { matrix } from '../../recipe.ts'
import { elementOf, fillRow, partOf, piecesOf, sumRow } from '../loops.ts'
import { sigmoid } from '../mathematics.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, wasmPass, type WasmKernel } from '../pass.ts'
import { f32, float, i32, type I32, type Int, v128, type V128 } from '../values.ts'
import { mapped, operand } from './elementwise.ts'
import { softmaxRow } from './rows.ts'

const { constant, add, mul, sub } = v128

/** Rows of a piece. */
const ROWS = 16

export const scaleForward: WasmKernel<'scale.forward'> = ({ size, factor }, capacity) =>
  mapped('scale.forward', { size, slope: factor }, capacity, {
    inputs: ['x'],
    output: 'y',
    f: (_, values) => mul(operand(values, 0), constant(factor)),
  })

// y = a · s(a) · b
export const swigluForward: WasmKernel<'swiglu.forward'> = (dims, capacity) =>
  mapped('swiglu.forward', dims, capacity, {
    inputs: ['a', 'b'],
    output: 'y',
    f: (w, values) => mul(mul(operand(values, 0), sigmoid(w, operand(values, 0))), operand(values, 1)),
  })

export const swigluGateGradient: WasmKernel<'swiglu.gateGradient'> = (dims, capacity) =>
  mapped('swiglu.gateGradient', dims, capacity, {
    inputs: ['a', 'b', 'dy'],
    output: 'dx',
    f(w, values) {
      const gate = operand(values, 0)
      const share = w.variable(sigmoid(w, gate))
      const slope = mul(share, add(constant(1), mul(gate, sub(constant(1), share))))
      return mul(mul(operand(values, 2), operand(values, 1)), slope)
    },
  })

export const swigluValueGradient: WasmKernel<'swiglu.valueGradient'> = (dims, capacity) =>
  mapped('swiglu.valueGradient', dims, capacity, {
    inputs: ['a', 'dy'],
    output: 'dx',
    f: (w, values) => mul(operand(values, 1), mul(operand(values, 0), sigmoid(w, operand(values, 0)))),
  })

/** body(row) for the rows of the piece */
function forRows(w: PieceWriter, length: number, body: (row: I32) => void): void {
  const { start, end } = partOf(w, w.piece, i32.mul(w.samples, length), ROWS)
  w.for(start, end, 1, body)
}

function rotaryParts(dims: RotaryDims, capacity: number) {
  const { length, heads, own, headSize, part, turns, context = length } = dims
  const rows = capacity * length
  return {
    constants: { length, heads, own, headSize, part, turns: turns ? 1 : 0, context },
    angles: matrix('angles', 'read', context, headSize),
    x: { rows, columns: own * headSize },
    packed: { rows, columns: 3 * heads * headSize },
    pieces: (samples: number) => piecesOf(samples * length, ROWS),
  }
}

/** Where head `head` of attention lies in a row of packed ones. */
function packedHead(w: PieceWriter, name: 'qkv' | 'dqkv', { heads, headSize, part }: RotaryDims, at: [I32, Int]): I32 {
  const [row, head] = at
  return w.int(w.at(name, i32.mul(i32.add(i32.mul(i32.add(i32.mul(row, 3), part), heads), head), headSize)))
}

/** The angles of a position: cosines and sines of half a head. */
function anglesOf(w: PieceWriter, { headSize }: RotaryDims, position: I32) {
  const cosines = w.int(w.at('angles', i32.mul(position, headSize)))
  const half = (headSize / 2) * FLOAT_BYTES
  return {
    cosine: (c: I32): V128 => v128.load(elementOf(cosines, c)),
    sine: (c: I32): V128 => v128.load(elementOf(cosines, c), half),
  }
}

// x (R, own, headSize), angles (T, headSize) → part of qkv (R, 3, heads, headSize)
export const rotaryForward: WasmKernel<'rotary.forward'> = (dims, capacity, { places }) => {
  const { angles, x, packed, constants, pieces } = rotaryParts(dims, capacity)
  const { own, heads, headSize, length, turns } = dims
  const half = headSize / 2
  return onePass(places === undefined ? 'rotary.forward' : 'rotary.forward placed', {
    constants,
    bindings: [
      matrix('x', 'read', x.rows, x.columns),
      angles,
      ...(places === undefined ? [] : [matrix('places', 'read', capacity, 1)]),
      matrix('qkv', 'update', packed.rows, packed.columns),
    ],
    pieces,
    write: (w) =>
      forRows(w, length, (row) => {
        const position = w.int(places === undefined ? i32.remUnsigned(row, length) : i32.load(w.at('places', row)))
        const { cosine, sine } = anglesOf(w, dims, position)
        w.for(0, heads, 1, (head) => {
          const shared = i32.divUnsigned(head, heads / own)
          const from = w.int(w.at('x', i32.mul(i32.add(i32.mul(row, own), shared), headSize)))
          const to = packedHead(w, 'qkv', dims, [row, head])
          if (!turns) return fillRow(w, headSize, to, (c) => v128.load(elementOf(from, c)))
          const first = (c: I32): V128 => v128.load(elementOf(from, c))
          const second = (c: I32): V128 => v128.load(elementOf(from, c), half * FLOAT_BYTES)
          fillRow(w, half, to, (c) => sub(mul(first(c), cosine(c)), mul(second(c), sine(c))))
          fillRow(w, half, w.int(elementOf(to, half)), (c) => add(mul(second(c), cosine(c)), mul(first(c), sine(c))))
        })
      }),
  })
}

// part of dqkv (R, 3, heads, headSize), angles (T, headSize) → dx (R, own, headSize)
export const rotaryBackward: WasmKernel<'rotary.backward'> = (dims, capacity) => {
  const { angles, x, packed, constants, pieces } = rotaryParts(dims, capacity)
  const { own, heads, headSize, length, turns } = dims
  const half = headSize / 2
  const sharers = heads / own
  return onePass('rotary.backward', {
    constants,
    bindings: [matrix('dqkv', 'read', packed.rows, packed.columns), angles, matrix('dx', 'write', x.rows, x.columns)],
    pieces,
    write: (w) =>
      forRows(w, length, (row) => {
        const { cosine, sine } = anglesOf(w, dims, w.int(i32.remUnsigned(row, length)))
        w.for(0, own, 1, (head) => {
          const from = packedHead(w, 'dqkv', dims, [row, w.int(i32.mul(head, sharers))])
          const to = w.int(w.at('dx', i32.mul(i32.add(i32.mul(row, own), head), headSize)))
          const sum = (c: I32, offset: number): V128 =>
            Array.from({ length: sharers }, (_, s) =>
              v128.load(elementOf(from, c), (s * headSize + offset) * FLOAT_BYTES),
            ).reduce((all, one) => add(all, one))
          if (!turns) return fillRow(w, headSize, to, (c) => sum(c, 0))
          fillRow(w, half, to, (c) => add(mul(sum(c, 0), cosine(c)), mul(sum(c, half), sine(c))))
          fillRow(w, half, w.int(elementOf(to, half)), (c) =>
            sub(mul(sum(c, half), cosine(c)), mul(sum(c, 0), sine(c))),
          )
        })
      }),
  })
}

// qkv (R, 3, heads, headSize), places (R,), cache (context, 2, heads, headSize) → y (R, heads, headSize)
export const cachedAttentionForward: WasmKernel<'cached_attention.forward'> = (dims, capacity) => {
  const { context, heads, headSize } = dims
  const channels = heads * headSize
  const [qkv, places] = [matrix('qkv', 'read', capacity, 3 * channels), matrix('places', 'read', capacity, 1)]
  const store = wasmPass('cached_attention.store', {
    constants: { context, heads, headSize },
    bindings: [qkv, places, matrix('cache', 'update', context, 2 * channels)],
    pieces: (samples) => samples,
    write: (w) =>
      w.copy(
        w.at('cache', i32.mul(i32.load(w.at('places', w.piece)), 2 * channels)),
        w.at('qkv', i32.add(i32.mul(w.piece, 3 * channels), channels)),
        2 * channels * FLOAT_BYTES,
      ),
  })
  const mix = wasmPass('cached_attention.forward', {
    constants: { context, heads, headSize },
    bindings: [qkv, places, matrix('cache', 'read', context, 2 * channels), matrix('y', 'write', capacity, channels)],
    scratchBytes: (context + 4) * FLOAT_BYTES,
    pieces: (samples) => samples * heads,
    write: (w) => attend(w, dims),
  })
  return { scratch: {}, passes: [store, mix] }
}

/** A piece for each head of each token. */
function attend(w: PieceWriter, { heads, headSize }: CachedAttentionDims): void {
  const channels = heads * headSize
  const row = w.int(i32.divUnsigned(w.piece, heads))
  const head = w.int(i32.mul(i32.remUnsigned(w.piece, heads), headSize))
  const count = w.int(i32.add(i32.load(w.at('places', row)), 1))
  const query = w.int(w.at('qkv', i32.add(i32.mul(row, 3 * channels), head)))
  const kept = (key: I32, part: 0 | 1): I32 =>
    w.int(w.at('cache', i32.add(i32.mul(i32.add(i32.mul(key, 2), part), channels), head)))
  w.for(0, count, 1, (key) => {
    const keys = kept(key, 0)
    const [score] = sumRow(w, headSize, [(e) => mul(v128.load(elementOf(query, e)), v128.load(elementOf(keys, e)))])
    w.store(elementOf(w.scratch, key), score ?? float(0))
  })
  softmaxRow(w, count, w.scratch, 1 / Math.sqrt(headSize))
  const to = w.int(w.at('y', i32.add(i32.mul(row, channels), head)))
  fillRow(w, headSize, to, () => constant(0))
  w.for(0, count, 1, (key) => {
    const values = kept(key, 1)
    const share = w.variable(v128.splat(f32.load(elementOf(w.scratch, key))))
    fillRow(w, headSize, to, (e) => add(v128.load(elementOf(to, e)), mul(share, v128.load(elementOf(values, e)))))
  })
}

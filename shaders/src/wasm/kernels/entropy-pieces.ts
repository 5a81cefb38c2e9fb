// Cross-entropy piece by piece of the classes: what a row's pieces leave (PIECE_STATE), its loss, its gradient.
import { type CrossEntropyDims, PIECE_STATE } from '../../kernels.ts'
import { matrix, optional } from '../../recipe.ts'
import { elementOf, fillRow, forRow, largestLane, piecesOf, sumRow } from '../loops.ts'
import { exp, log } from '../mathematics.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, type WasmKernel } from '../pass.ts'
import { f32, type F32, float, i32, type I32, v128 } from '../values.ts'
import { forRows, largestOf, ROWS } from './rows.ts'

const { constant, add, sub } = v128

/** Below the negative of any class. */
const NONE = -1e9

// logits (R, classes), target (R,), before (R, 8) → state (R, 8)
export const crossEntropyLook: WasmKernel<'cross_entropy.look'> = ({ rows, classes, first }, capacity, operands) =>
  onePass('cross_entropy.look', {
    constants: { rows, classes, first },
    bindings: [
      matrix('logits', 'read', capacity * rows, classes),
      matrix('target', 'read', capacity * rows, 1),
      optional('before', 'read', capacity * rows * PIECE_STATE, operands.before),
      matrix('state', 'write', capacity * rows, PIECE_STATE),
    ],
    pieces: (samples) => piecesOf(samples * rows, ROWS),
    write: (w) =>
      forRows(w, rows, (row) => {
        const x = w.int(w.at('logits', i32.mul(row, classes)))
        const before = w.has('before') ? w.int(w.at('before', i32.mul(row, PIECE_STATE))) : undefined
        const kept = (i: number, none: number) => w.variable(before ? f32.load(elementOf(before, i)) : float(none))
        const [top, sum, total, place, wanted] = [kept(0, -Infinity), kept(1, 0), kept(2, 0), kept(3, 0), kept(4, 0)]
        const largest = w.variable(largestOf(w, classes, x))
        w.if(f32.greater(largest, top), () => w.set(place, f32.add(float(first), placeOf(w, classes, x, largest))))
        const higher = w.variable(f32.max(top, largest))
        const shift = w.variable(v128.splat(higher))
        const [powers = float(0), all = float(0)] = sumRow(w, classes, [
          (e) => exp(w, sub(v128.load(elementOf(x, e)), shift)),
          (e) => v128.load(elementOf(x, e)),
        ])
        if (before) w.set(sum, f32.mul(sum, v128.lane(exp(w, v128.splat(f32.sub(top, higher))), 0)))
        const label = w.int(i32.sub(i32.load(w.at('target', row)), first))
        w.if(i32.lessUnsigned(label, classes), () => w.set(wanted, f32.load(elementOf(x, label))))
        const state = w.int(w.at('state', i32.mul(row, PIECE_STATE)))
        const found = [higher, f32.add(sum, powers), f32.add(total, all), place, wanted]
        for (const [i, value] of found.entries()) w.store(elementOf(state, i), value)
      }),
  })

/** The first of the largest. */
function placeOf(w: PieceWriter, classes: number, x: I32, largest: F32): F32 {
  const wanted = w.variable(v128.splat(largest))
  const nearest = w.variable(constant(NONE))
  forRow(w, classes, (element, _, mask) => {
    const index = v128.fromInt(v128.intAdd(v128.intSplat(element), v128.intConstant(0, 1, 2, 3)))
    const equal = v128.equal(v128.load(elementOf(x, element)), wanted)
    const chosen = v128.choose(mask ? v128.and(equal, mask) : equal, v128.neg(index), constant(NONE))
    w.set(nearest, v128.max(nearest, chosen))
  })
  return f32.sub(float(0), largestLane(w, nearest))
}

// state (R, 8), target (R,) → loss (R,), correct (R,), logSums (R,)
export const crossEntropyJoin: WasmKernel<'cross_entropy.join'> = (dims, capacity) => {
  const { rows, classes, smoothing = 0 } = dims
  const count = capacity * rows
  return onePass('cross_entropy.join', {
    constants: { rows, classes, smoothing: { f32: smoothing }, ...ignoring(dims) },
    bindings: [
      matrix('state', 'read', count, PIECE_STATE),
      matrix('target', 'read', count, 1),
      matrix('loss', 'write', count, 1),
      matrix('correct', 'write', count, 1),
      matrix('logSums', 'write', count, 1),
    ],
    pieces: (samples) => piecesOf(samples * rows, ROWS),
    write: (w) =>
      forRows(w, rows, (row) => {
        const state = w.int(w.at('state', i32.mul(row, PIECE_STATE)))
        const part = (i: number): F32 => f32.load(elementOf(state, i))
        const logSum = w.variable(f32.add(v128.lane(log(w, v128.splat(part(1))), 0), part(0)))
        w.store(w.at('logSums', row), logSum)
        const label = w.int(i32.load(w.at('target', row)))
        const spread = f32.mul(part(2), float(Math.fround(smoothing / classes)))
        const surprise = f32.sub(f32.sub(logSum, f32.mul(part(4), float(1 - smoothing))), spread)
        unlessIgnored(w, dims, label, {
          counts() {
            w.store(w.at('loss', row), surprise)
            w.store(w.at('correct', row), f32.ofInt(f32.equal(part(3), f32.ofInt(label))))
          },
          ignored() {
            w.store(w.at('loss', row), float(0))
            w.store(w.at('correct', row), float(0))
          },
        })
      }),
  })
}

// logits (R, classes), target (R,), logSums (R,) → dx (R, classes)
export const crossEntropyGradient: WasmKernel<'cross_entropy.gradient'> = (dims, capacity) => {
  const { rows, classes, first, all, smoothing = 0 } = dims
  const count = capacity * rows
  return onePass('cross_entropy.gradient', {
    constants: { rows, classes, first, all, smoothing: { f32: smoothing }, ...ignoring(dims) },
    bindings: [
      matrix('logits', 'read', count, classes),
      matrix('target', 'read', count, 1),
      matrix('logSums', 'read', count, 1),
      matrix('dx', 'write', count, classes),
    ],
    pieces: (samples) => piecesOf(samples * rows, ROWS),
    write: (w) =>
      forRows(w, rows, (row) => {
        const [x, dx] = [w.int(w.at('logits', i32.mul(row, classes))), w.int(w.at('dx', i32.mul(row, classes)))]
        const label = w.int(i32.load(w.at('target', row)))
        unlessIgnored(w, dims, label, {
          counts() {
            const shift = w.variable(v128.splat(f32.load(w.at('logSums', row))))
            fillRow(w, classes, dx, (e) => {
              const share = exp(w, sub(v128.load(elementOf(x, e)), shift))
              return smoothing > 0 ? add(share, constant(-Math.fround(smoothing / all))) : share
            })
            const own = w.int(i32.sub(label, first))
            w.if(i32.lessUnsigned(own, classes), () => w.addFloat(elementOf(dx, own), float(smoothing - 1)))
          },
          ignored: () => w.clear(dx, classes * FLOAT_BYTES),
        })
      }),
  })
}

/** Passes of equal constants do the same. */
function ignoring({ ignored }: CrossEntropyDims): { readonly ignored: number; readonly ignores: number } {
  return { ignored: ignored ?? 0, ignores: Number(ignored !== undefined) }
}

interface ByLabel {
  counts(): void
  ignored(): void
}

function unlessIgnored(w: PieceWriter, { ignored }: CrossEntropyDims, label: I32, what: ByLabel): void {
  if (ignored === undefined) return what.counts()
  w.if(
    i32.equal(label, ignored),
    () => what.ignored(),
    () => what.counts(),
  )
}

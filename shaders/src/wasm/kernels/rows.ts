// Operators that take the last dimension as a whole: softmax, layer norm and RMS norm, and the losses.
import type { RowNormDims } from '../../kernels.ts'
import { matrix, optional } from '../../recipe.ts'
import { elementOf, fillRow, forRow, largestLane, partOf, piecesOf, sumOfLanes, sumRow } from '../loops.ts'
import { exp, log, log1p, sigmoid } from '../mathematics.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, type WasmKernel } from '../pass.ts'
import { at, storeFirst } from '../products.ts'
import { f32, type F32, float, i32, type I32, int, type Int, v128, type V128 } from '../values.ts'

const { constant, add, mul, sub } = v128

/** Rows of a piece. */
export const ROWS = 16
/** Columns of one piece of a sum over rows: a cache line. */
const LINE = 16

/** body(row) for the rows of the piece */
export function forRows(w: PieceWriter, rows: number, body: (row: I32) => void): void {
  const { start, end } = partOf(w, w.piece, i32.mul(w.samples, rows), ROWS)
  w.for(start, end, 1, body)
}

/** The largest of a row; −∞ of an empty one, NaN where there is one. */
export function largestOf(w: PieceWriter, count: Int, row: I32): F32 {
  const top = w.variable(constant(-Infinity))
  forRow(w, count, (element, _, mask) => {
    const value = v128.load(elementOf(row, element))
    w.set(top, v128.max(top, mask ? v128.choose(mask, value, constant(-Infinity)) : value))
  })
  return w.variable(largestLane(w, top))
}

/** to[element] = e^(from[element] · scale − top · scale); their sum */
export function exponentials(
  w: PieceWriter,
  count: Int,
  { from, to, top, scale = 1 }: { readonly from: I32; readonly to: I32; readonly top: F32; readonly scale?: number },
): F32 {
  const shift = w.variable(v128.splat(top))
  const sum = w.variable(constant(0))
  forRow(w, count, (element, left, mask) => {
    const power = w.variable(exp(w, mul(sub(v128.load(elementOf(from, element)), shift), constant(scale))))
    w.set(sum, add(sum, mask ? v128.and(power, mask) : power))
    storeFirst(w, elementOf(to, element), power, left)
  })
  return w.variable(sumOfLanes(w, sum))
}

function scaleRow(w: PieceWriter, count: Int, row: I32, factor: V128): void {
  const kept = w.variable(factor)
  fillRow(w, count, row, (element) => mul(v128.load(elementOf(row, element)), kept))
}

/** row = softmax(row · scale), in place; ln Σ e^(row · scale) is `top` · scale + ln of what comes back */
export function softmaxRow(w: PieceWriter, count: Int, row: I32, scale = 1): { readonly top: F32; readonly sum: F32 } {
  const top = largestOf(w, count, row)
  const sum = exponentials(w, count, { from: row, to: row, top, scale })
  scaleRow(w, count, row, v128.splat(f32.div(float(1), sum)))
  return { top, sum }
}

export const softmaxForward: WasmKernel<'softmax.forward'> = ({ rows, columns }, capacity) =>
  onePass('softmax.forward', {
    constants: { rows, columns },
    bindings: [matrix('x', 'read', capacity * rows, columns), matrix('y', 'write', capacity * rows, columns)],
    pieces: (samples) => piecesOf(samples * rows, ROWS),
    write: (w) =>
      forRows(w, rows, (row) => {
        const [x, y] = [w.int(w.at('x', i32.mul(row, columns))), w.int(w.at('y', i32.mul(row, columns)))]
        const top = largestOf(w, columns, x)
        const sum = exponentials(w, columns, { from: x, to: y, top })
        scaleRow(w, columns, y, v128.splat(f32.div(float(1), sum)))
      }),
  })

// dx = y · (dy − Σ y · dy)
export const softmaxBackward: WasmKernel<'softmax.backward'> = ({ rows, columns }, capacity) =>
  onePass('softmax.backward', {
    constants: { rows, columns },
    bindings: [
      matrix('y', 'read', capacity * rows, columns),
      matrix('dy', 'read', capacity * rows, columns),
      matrix('dx', 'write', capacity * rows, columns),
    ],
    pieces: (samples) => piecesOf(samples * rows, ROWS),
    write: (w) =>
      forRows(w, rows, (row) => {
        const [y, dy] = [w.int(w.at('y', i32.mul(row, columns))), w.int(w.at('dy', i32.mul(row, columns)))]
        const [mean] = sumRow(w, columns, [(e) => mul(v128.load(elementOf(y, e)), v128.load(elementOf(dy, e)))])
        const shift = w.variable(v128.splat(at([mean], 0) ?? float(0)))
        fillRow(w, columns, w.int(w.at('dx', i32.mul(row, columns))), (e) =>
          mul(v128.load(elementOf(y, e)), sub(v128.load(elementOf(dy, e)), shift)),
        )
      }),
  })

function normShape({ rows, columns, eps }: RowNormDims) {
  return { rows, columns, eps: { f32: eps } }
}

/** y = (x − mean) · inverse · weight + bias; writes inverse, and mean where the norm has one */
function writeNorm(w: PieceWriter, { rows, columns, eps }: RowNormDims, hasMean: boolean): void {
  forRows(w, rows, (row) => {
    const x = w.int(w.at('x', i32.mul(row, columns)))
    const middle = w.variable(constant(0))
    if (hasMean) {
      const [sum] = sumRow(w, columns, [(e) => v128.load(elementOf(x, e))])
      const mean = w.variable(f32.div(sum ?? float(0), float(columns)))
      w.store(w.at('mean', row), mean)
      w.set(middle, v128.splat(mean))
    }
    const centred = (e: I32): V128 => sub(v128.load(elementOf(x, e)), middle)
    const [squares] = sumRow(w, columns, [
      (e) => {
        const value = w.variable(centred(e))
        return mul(value, value)
      },
    ])
    const variance = f32.add(f32.div(squares ?? float(0), float(columns)), float(eps))
    const inverse = w.variable(f32.div(float(1), f32.sqrt(variance)))
    w.store(w.at('inverse', row), inverse)
    const factor = w.variable(v128.splat(inverse))
    fillRow(w, columns, w.int(w.at('y', i32.mul(row, columns))), (e) => {
      const scaled = mul(mul(centred(e), factor), v128.load(w.at('weight', e)))
      return w.has('bias') ? add(scaled, v128.load(w.at('bias', e))) : scaled
    })
  })
}

export const layernormForward: WasmKernel<'layernorm.forward'> = (dims, capacity, operands) => {
  const count = capacity * dims.rows
  return onePass('layernorm.forward', {
    constants: normShape(dims),
    bindings: [
      matrix('x', 'read', count, dims.columns),
      matrix('weight', 'read', 1, dims.columns),
      optional('bias', 'read', dims.columns, operands.bias),
      matrix('y', 'write', count, dims.columns),
      matrix('mean', 'write', count, 1),
      matrix('inverse', 'write', count, 1),
    ],
    pieces: (samples) => piecesOf(samples * dims.rows, ROWS),
    write: (w) => writeNorm(w, dims, true),
  })
}

export const rmsnormForward: WasmKernel<'rmsnorm.forward'> = (dims, capacity) => {
  const count = capacity * dims.rows
  return onePass('rmsnorm.forward', {
    constants: normShape(dims),
    bindings: [
      matrix('x', 'read', count, dims.columns),
      matrix('weight', 'read', 1, dims.columns),
      matrix('y', 'write', count, dims.columns),
      matrix('inverse', 'write', count, 1),
    ],
    pieces: (samples) => piecesOf(samples * dims.rows, ROWS),
    write: (w) => writeNorm(w, dims, false),
  })
}

/** x̂ of a row */
function normalizedRow(w: PieceWriter, x: I32, row: I32): (e: I32) => V128 {
  const inverse = w.variable(v128.loadSplat(w.at('inverse', row)))
  const middle = w.has('mean') ? w.variable(v128.loadSplat(w.at('mean', row))) : undefined
  return (e) => {
    const value = v128.load(elementOf(x, e))
    return mul(middle ? sub(value, middle) : value, inverse)
  }
}

// With g = dy · weight: dx = inverse · (g − average of g − x̂ · average of g·x̂); the first average is the mean's
// doing.
export function rowNormInputGradient(norm: 'layernorm' | 'rmsnorm'): WasmKernel<`${typeof norm}.inputGradient`> {
  return (dims, capacity, { residual }) => {
    const { rows, columns } = dims
    const count = capacity * rows
    return onePass(`${norm}.inputGradient`, {
      constants: normShape(dims),
      bindings: [
        matrix('x', 'read', count, columns),
        matrix('weight', 'read', 1, columns),
        matrix('dy', 'read', count, columns),
        ...(norm === 'layernorm' ? [matrix('mean', 'read', count, 1)] : []),
        matrix('inverse', 'read', count, 1),
        ...(residual ? [matrix('residual', 'read', count, columns)] : []),
        matrix('dx', 'write', count, columns),
      ],
      pieces: (samples) => piecesOf(samples * rows, ROWS),
      write: (w) =>
        forRows(w, rows, (row) => {
          const [x, dy] = [w.int(w.at('x', i32.mul(row, columns))), w.int(w.at('dy', i32.mul(row, columns)))]
          const normalized = normalizedRow(w, x, row)
          const g = (e: I32): V128 => mul(v128.load(elementOf(dy, e)), v128.load(w.at('weight', e)))
          const [shiftSum, slopeSum] = sumRow(w, columns, [g, (e) => mul(g(e), normalized(e))])
          const average = (sum: F32 | undefined) => w.variable(v128.splat(f32.div(sum ?? float(0), float(columns))))
          const shift = norm === 'layernorm' ? average(shiftSum) : undefined
          const slope = average(slopeSum)
          const inverse = w.variable(v128.loadSplat(w.at('inverse', row)))
          const past = residual ? w.int(w.at('residual', i32.mul(row, columns))) : undefined
          fillRow(w, columns, w.int(w.at('dx', i32.mul(row, columns))), (e) => {
            const centred = shift ? sub(g(e), shift) : g(e)
            const gradient = mul(inverse, sub(centred, mul(normalized(e), slope)))
            return past ? add(gradient, v128.load(elementOf(past, e))) : gradient
          })
        }),
    })
  }
}

// dweight (columns,) += Σ_rows dy · x̂;  dbias (columns,) += Σ_rows dy
export function rowNormParameterGradient(
  norm: 'layernorm' | 'rmsnorm',
): WasmKernel<`${typeof norm}.parameterGradient`> {
  return (dims, capacity, operands) => {
    const { rows, columns } = dims
    const count = capacity * rows
    const dbias = 'dbias' in operands ? operands.dbias : undefined
    return onePass(`${norm}.parameterGradient`, {
      constants: normShape(dims),
      bindings: [
        matrix('x', 'read', count, columns),
        matrix('dy', 'read', count, columns),
        ...(norm === 'layernorm' ? [matrix('mean', 'read', count, 1)] : []),
        matrix('inverse', 'read', count, 1),
        matrix('dweight', 'update', 1, columns),
        optional('dbias', 'update', columns, dbias),
      ],
      pieces: () => piecesOf(columns, LINE),
      write(w) {
        const { start, end } = partOf(w, w.piece, columns, LINE)
        w.for(start, end, 4, (column) => {
          const [weightSum, biasSum] = [w.variable(constant(0)), w.variable(constant(0))]
          const [x, dy] = [w.int(w.at('x', column)), w.int(w.at('dy', column))]
          w.for(0, i32.mul(w.samples, rows), 1, (row) => {
            const d = w.variable(v128.load(dy))
            w.set(weightSum, add(weightSum, mul(d, normalizedRow(w, x, row)(int(0)))))
            w.set(biasSum, add(biasSum, d))
            w.increase(x, columns * FLOAT_BYTES)
            w.increase(dy, columns * FLOAT_BYTES)
          })
          const join = (name: string, sum: V128): void => {
            const place = w.int(w.at(name, column))
            storeFirst(w, place, add(v128.load(place), sum), i32.sub(end, column))
          }
          join('dweight', weightSum)
          if (w.has('dbias')) join('dbias', biasSum)
        })
      },
    })
  }
}

// x (R, classes), target (R,) → loss (R,), correct (R,), dx (R, classes) = softmax(x) − what is wanted
export const crossEntropyLoss: WasmKernel<'cross_entropy.loss'> = (dims, capacity) => {
  const { rows, classes, smoothing = 0, ignored } = dims
  const count = capacity * rows
  return onePass('cross_entropy.loss', {
    constants: {
      rows,
      classes,
      smoothing: { f32: smoothing },
      ignored: ignored ?? -2147483648,
      ignores: Number(ignored !== undefined),
    },
    bindings: [
      matrix('x', 'read', count, classes),
      matrix('target', 'read', count, 1),
      matrix('loss', 'write', count, 1),
      matrix('correct', 'write', count, 1),
      matrix('dx', 'write', count, classes),
    ],
    pieces: (samples) => piecesOf(samples * rows, ROWS),
    write: (w) =>
      forRows(w, rows, (row) => {
        const [x, dx] = [w.int(w.at('x', i32.mul(row, classes))), w.int(w.at('dx', i32.mul(row, classes)))]
        const label = w.int(i32.load(w.at('target', row)))
        const entropy = (): void => writeEntropy(w, { classes, smoothing }, { row, x, dx, label })
        if (ignored === undefined) entropy()
        else
          w.if(
            i32.equal(label, ignored),
            () => {
              w.store(w.at('loss', row), float(0))
              w.store(w.at('correct', row), float(0))
              w.clear(dx, classes * FLOAT_BYTES)
            },
            entropy,
          )
      }),
  })
}

interface EntropyRow {
  readonly row: I32
  readonly x: I32
  readonly dx: I32
  readonly label: I32
}

function writeEntropy(
  w: PieceWriter,
  { classes, smoothing }: { readonly classes: number; readonly smoothing: number },
  { row, x, dx, label }: EntropyRow,
): void {
  const top = largestOf(w, classes, x)
  const sum = exponentials(w, classes, { from: x, to: dx, top })
  const logit = w.variable(f32.load(elementOf(x, label)))
  const surprise = w.variable(
    f32.add(v128.lane(log(w, v128.splat(sum)), 0), f32.mul(f32.sub(top, logit), float(1 - smoothing))),
  )
  const spread = Math.fround(smoothing / classes)
  if (smoothing > 0) {
    const shift = w.variable(v128.splat(top))
    const [distance] = sumRow(w, classes, [(e) => sub(shift, v128.load(elementOf(x, e)))])
    w.set(surprise, f32.add(surprise, f32.mul(distance ?? float(0), float(spread))))
  }
  w.store(w.at('loss', row), surprise)
  // the first of the largest
  const earlier = w.int(0)
  w.for(0, label, 1, (i) => w.set(earlier, i32.add(earlier, f32.equal(f32.load(elementOf(x, i)), top))))
  const isBest = i32.and(f32.equal(logit, top), i32.equal(earlier, 0))
  w.store(w.at('correct', row), f32.ofInt(isBest))
  const factor = w.variable(v128.splat(f32.div(float(1), sum)))
  fillRow(w, classes, dx, (e) => {
    const share = mul(v128.load(elementOf(dx, e)), factor)
    return smoothing > 0 ? sub(share, constant(spread)) : share
  })
  w.addFloat(elementOf(dx, label), float(smoothing - 1))
}

// x and target (B, size) → loss (B,) = Σ (x − target)², dx (B, size) = 2 (x − target)
export const mseLoss: WasmKernel<'mse.loss'> = ({ size }, capacity) =>
  onePass('mse.loss', {
    constants: { size },
    bindings: [
      matrix('x', 'read', capacity, size),
      matrix('target', 'read', capacity, size),
      matrix('loss', 'write', capacity, 1),
      matrix('dx', 'write', capacity, size),
    ],
    pieces: (samples) => samples,
    write(w) {
      const first = w.int(i32.mul(w.piece, size))
      const error = (e: I32): V128 =>
        w.variable(sub(v128.load(w.at('x', i32.add(first, e))), v128.load(w.at('target', i32.add(first, e)))))
      const [sum] = sumRow(w, size, [
        (e) => {
          const value = error(e)
          return mul(value, value)
        },
      ])
      w.store(w.at('loss', w.piece), sum ?? float(0))
      fillRow(w, size, w.int(w.at('dx', first)), (e) => mul(error(e), constant(2)))
    },
  })

// loss (B,), correct (B,) = outputs on the right side of ½, dx (B, size) = sigmoid(x) − target
export const bceWithLogitsLoss: WasmKernel<'bce_with_logits.loss'> = ({ size }, capacity) =>
  onePass('bce_with_logits.loss', {
    constants: { size },
    bindings: [
      matrix('x', 'read', capacity, size),
      matrix('target', 'read', capacity, size),
      matrix('loss', 'write', capacity, 1),
      matrix('correct', 'write', capacity, 1),
      matrix('dx', 'write', capacity, size),
    ],
    pieces: (samples) => samples,
    write(w) {
      const first = w.int(i32.mul(w.piece, size))
      const [x, target] = [w.int(w.at('x', first)), w.int(w.at('target', first))]
      const zero = constant(0)
      const [loss, right] = sumRow(w, size, [
        (e) => {
          const [value, wanted] = [w.variable(v128.load(elementOf(x, e))), v128.load(elementOf(target, e))]
          const tail = log1p(w, exp(w, v128.neg(v128.abs(value))))
          return add(sub(v128.max(value, zero), mul(value, wanted)), tail)
        },
        (e) => {
          const side = mul(v128.load(elementOf(x, e)), sub(v128.load(elementOf(target, e)), constant(0.5)))
          return v128.and(v128.greater(side, zero), constant(1))
        },
      ])
      w.store(w.at('loss', w.piece), loss ?? float(0))
      w.store(w.at('correct', w.piece), right ?? float(0))
      fillRow(w, size, w.int(w.at('dx', first)), (e) =>
        sub(sigmoid(w, w.variable(v128.load(elementOf(x, e)))), v128.load(elementOf(target, e))),
      )
    },
  })

// Linear layers. x (R, in), weight (out, in) → y (R, out), with R = samples · rows. A piece makes a panel of eight
// columns for a block of rows: the weights of the panel are brought side by side first, and then meet every row.
import type { DerivativeDims, FinishDims, LinearDims } from '../../kernels.ts'
import { matrix, optional } from '../../recipe.ts'
import { ACTIVATIONS, finished, finishedGradient } from '../epilogue.ts'
import { elementOf, packRows, packTurned, partOf, piecesOf, transposed, VECTOR } from '../loops.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, wasmPass, type WasmRecipe, type WasmKernel } from '../pass.ts'
import { PANEL, product, storeFirst } from '../products.ts'
import { i32, type I32, select, v128, type V128 } from '../values.ts'

/** Rows that meet a panel before the next one is packed. */
const ROW_BLOCK = 128
/** Columns whose gradients of the bias, and whose turned rows, one piece makes: a cache line. */
const TURN_COLUMNS = 16
/** Samples whose products a piece adds up at a time: a panel of so many stays in the nearest cache. */
const STEP_BLOCK = 512
const PANEL_BYTES = PANEL * FLOAT_BYTES

/** A block of rows and a panel of columns. */
interface PanelBlock {
  readonly row: I32
  readonly rows: I32
  readonly column: I32
}

function blockOf(w: PieceWriter, rows: I32, columns: number): PanelBlock {
  const panels = piecesOf(columns, PANEL)
  const { start, end } = partOf(w, i32.divUnsigned(w.piece, panels), rows, ROW_BLOCK)
  return {
    row: start,
    rows: w.int(i32.sub(end, start)),
    column: w.int(i32.mul(i32.remUnsigned(w.piece, panels), PANEL)),
  }
}

function blocks(rows: number, columns: number): number {
  return piecesOf(columns, PANEL) * piecesOf(rows, ROW_BLOCK)
}

function packedBytes(steps: number): number {
  return (steps + VECTOR) * PANEL_BYTES
}

export const linearForward: WasmKernel<'linear.forward'> = (dims, capacity, operands) => {
  const { rows, in: inputs, out } = dims
  const count = capacity * rows
  return onePass('linear.forward', {
    constants: { ...shapeOf(dims), ...epilogueOf(dims) },
    bindings: [
      matrix('x', 'read', count, inputs),
      matrix('weight', 'read', out, inputs),
      optional('bias', 'read', out, operands.bias),
      ...(operands.residual ? [matrix('residual', 'read', count, out)] : []),
      ...(operands.preactivation ? [matrix('preactivation', 'write', count, out)] : []),
      matrix('y', 'write', count, out),
    ],
    scratchBytes: packedBytes(inputs),
    pieces: (samples) => blocks(samples * rows, out),
    write(w) {
      const block = blockOf(w, i32.mul(w.samples, rows), out)
      packTurned(w, {
        to: w.scratch,
        from: w.at('weight', i32.mul(block.column, inputs)),
        steps: inputs,
        rowBytes: inputs * FLOAT_BYTES,
      })
      const bias = w.has('bias') ? biasOf(w, block.column) : undefined
      product(w, {
        options: w.options,
        a: { address: w.at('x', i32.mul(block.row, inputs)), rowBytes: inputs * FLOAT_BYTES, stepBytes: FLOAT_BYTES },
        b: { address: w.scratch, stepBytes: PANEL_BYTES },
        rows: block.rows,
        columns: panelColumns(w, block.column, out),
        steps: inputs,
        put(row, column, sum) {
          const place = w.int(i32.add(i32.mul(i32.add(block.row, row), out), i32.add(block.column, column)))
          const residual = w.has('residual') ? v128.load(w.at('residual', place)) : undefined
          const left = w.int(i32.sub(i32.sub(out, block.column), column))
          const y = finished(w, dims, {
            sum: bias ? v128.add(sum, bias(column)) : sum,
            residual,
            keep: (value) => w.has('preactivation') && storeFirst(w, w.at('preactivation', place), value, left),
          })
          storeFirst(w, w.at('y', place), y, left)
        },
      })
    },
  })
}

function biasOf(w: PieceWriter, first: I32): (column: I32) => V128 {
  return (column) => v128.load(w.at('bias', i32.add(first, column)))
}

/** of the panel that begins at `column` */
function panelColumns(w: PieceWriter, column: I32, columns: number): I32 | number {
  return columns % PANEL === 0 ? PANEL : w.int(i32.min(i32.sub(columns, column), PANEL))
}

function shapeOf({ rows, in: inputs, out }: LinearDims): Record<string, number> {
  return { rows, in: inputs, out }
}

/** What sets functions of equal shapes apart. */
export function epilogueOf({ activation, derivative, slope = 0 }: FinishDims & DerivativeDims): Record<string, number> {
  const number = Object.keys(ACTIVATIONS).indexOf(activation ?? derivative ?? '') + 1
  return { epilogue: number, slope }
}

// dx (R, in) = dy (R, out) · weight (out, in) · derivative(activated)
export const linearInputGradient: WasmKernel<'linear.inputGradient'> = (dims, capacity, operands) => {
  const { rows, in: inputs, out } = dims
  const count = capacity * rows
  return onePass('linear.inputGradient', {
    constants: { ...shapeOf(dims), ...epilogueOf(dims) },
    bindings: [
      matrix('weight', 'read', out, inputs),
      matrix('dy', 'read', count, out),
      ...(operands.activated ? [matrix('activated', 'read', count, inputs)] : []),
      matrix('dx', 'write', count, inputs),
    ],
    scratchBytes: packedBytes(out),
    pieces: (samples) => blocks(samples * rows, inputs),
    write(w) {
      const block = blockOf(w, i32.mul(w.samples, rows), inputs)
      packRows(w, { to: w.scratch, from: w.at('weight', block.column), steps: out, rowBytes: inputs * FLOAT_BYTES })
      product(w, {
        options: w.options,
        a: { address: w.at('dy', i32.mul(block.row, out)), rowBytes: out * FLOAT_BYTES, stepBytes: FLOAT_BYTES },
        b: { address: w.scratch, stepBytes: PANEL_BYTES },
        rows: block.rows,
        columns: panelColumns(w, block.column, inputs),
        steps: out,
        put(row, column, sum) {
          const place = w.int(i32.add(i32.mul(i32.add(block.row, row), inputs), i32.add(block.column, column)))
          const dx = finishedGradient(w, dims, sum, () => v128.load(w.at('activated', place)))
          storeFirst(w, w.at('dx', place), dx, i32.sub(i32.sub(inputs, block.column), column))
        },
      })
    },
  })
}

// dweight (out, in) += dyᵀ (out, R) · x (R, in);  dbias (out,) += Σ_R dy
export const linearParameterGradient: WasmKernel<'linear.parameterGradient'> = (
  dims,
  capacity,
  operands,
): WasmRecipe => {
  const { rows, in: inputs, out } = dims
  const count = capacity * rows
  const turnedColumns = Math.ceil(count / VECTOR) * VECTOR + VECTOR
  const turnedRows = Math.ceil(out / VECTOR) * VECTOR
  const turned = matrix('turned', 'write', turnedRows, turnedColumns)
  return {
    scratch: { turned: turnedRows * turnedColumns + VECTOR },
    passes: [
      wasmPass('linear.parameterGradient turn', {
        constants: { ...shapeOf(dims), turnedColumns },
        bindings: [matrix('dy', 'read', count, out), optional('dbias', 'update', out, operands.dbias), turned],
        pieces: () => piecesOf(out, TURN_COLUMNS),
        write: (w) => turn(w, dims, turnedColumns),
      }),
      wasmPass('linear.parameterGradient', {
        constants: { ...shapeOf(dims), turnedColumns },
        bindings: [
          matrix('x', 'read', count, inputs),
          { ...turned, access: 'read' },
          { ...matrix('dweight', 'update', out, inputs), covers: true },
        ],
        scratchBytes: packedBytes(Math.min(count, STEP_BLOCK)),
        pieces: () => blocks(out, inputs),
        write: (w) => weightGradient(w, dims, turnedColumns),
      }),
    ],
  }
}

function turn(w: PieceWriter, { rows, out }: LinearDims, turnedColumns: number): void {
  const count = w.int(i32.mul(w.samples, rows))
  const { start, end } = partOf(w, w.piece, out, TURN_COLUMNS)
  w.for(start, end, VECTOR, (column) => {
    const source = w.int(w.at('dy', column))
    const target = w.int(w.at('turned', i32.mul(column, turnedColumns)))
    w.for(0, count, VECTOR, () => {
      const read = [0, 1, 2, 3].map((i) => w.variable(v128.load(source, i * out * FLOAT_BYTES)))
      for (const [i, vector] of transposed(w, read).entries()) w.store(target, vector, i * turnedColumns * FLOAT_BYTES)
      w.increase(source, VECTOR * out * FLOAT_BYTES)
      w.increase(target, VECTOR * FLOAT_BYTES)
    })
    if (!w.has('dbias')) return
    const sum = w.variable(v128.constant(0))
    w.set(source, w.at('dy', column))
    w.for(0, count, 1, () => {
      w.set(sum, v128.add(sum, v128.load(source)))
      w.increase(source, out * FLOAT_BYTES)
    })
    const place = w.int(w.at('dbias', column))
    storeFirst(w, place, v128.add(v128.load(place), sum), i32.sub(out, column))
  })
}

function weightGradient(w: PieceWriter, { rows, in: inputs, out }: LinearDims, turnedColumns: number): void {
  const count = w.int(i32.mul(w.samples, rows))
  const block = blockOf(w, i32.add(out, 0), inputs)
  w.for(0, count, STEP_BLOCK, (first) => {
    const steps = w.int(i32.min(i32.sub(count, first), STEP_BLOCK))
    packRows(w, {
      to: w.scratch,
      from: w.at('x', i32.add(i32.mul(first, inputs), block.column)),
      steps,
      rowBytes: inputs * FLOAT_BYTES,
    })
    const joins = w.int(select(i32.add(1, 0), i32.add(w.joins('dweight'), 0), i32.notEqual(first, 0)))
    product(w, {
      options: w.options,
      a: {
        address: elementOf(w.at('turned', i32.mul(block.row, turnedColumns)), first),
        rowBytes: turnedColumns * FLOAT_BYTES,
        stepBytes: FLOAT_BYTES,
      },
      b: { address: w.scratch, stepBytes: PANEL_BYTES },
      rows: block.rows,
      columns: panelColumns(w, block.column, inputs),
      steps,
      put(row, column, sum) {
        const place = w.int(
          w.at('dweight', i32.add(i32.mul(i32.add(block.row, row), inputs), i32.add(block.column, column))),
        )
        const old = select(v128.load(place), v128.constant(0), joins)
        storeFirst(w, place, v128.add(old, sum), i32.sub(i32.sub(inputs, block.column), column))
      },
    })
  })
}

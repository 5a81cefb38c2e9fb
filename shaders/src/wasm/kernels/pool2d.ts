// Poolings, channel by channel. x (B, C, H, W) → y (B, C, H', W').
import type { DerivativeDims, KernelName, Pool2dDims } from '../../kernels.ts'
import { matrix } from '../../recipe.ts'
import { finishedGradient } from '../epilogue.ts'
import type { Local } from '../function.ts'
import { elementOf, fillRow, partOf, piecesOf, sumRow } from '../loops.ts'
import { onePass, type PieceWriter, type WasmRecipe, type WasmKernel } from '../pass.ts'
import { f32, type F32, float, i32, type I32, type Int, select, v128 } from '../values.ts'
import { epilogueOf } from './linear.ts'

/** Output cells of a piece, about: planes are taken together until there are so many. */
const CELLS = 4096

function planesEach(plane: number): number {
  return Math.max(1, Math.floor(CELLS / plane))
}

interface Cells {
  readonly plane: I32
  /** output cell, counted over all planes */
  readonly output: I32
  readonly row: I32
  readonly column: I32
}

/** body(plane) for those of the piece, at most `each` */
function forPlanes(w: PieceWriter, channels: number, each: number, body: (plane: I32) => void): void {
  const { start, end } = partOf(w, w.piece, i32.mul(w.samples, channels), each)
  w.for(start, end, 1, body)
}

function forCells(w: PieceWriter, { outHeight, outWidth }: Pool2dDims, plane: I32, body: (cells: Cells) => void): void {
  const output = w.int(i32.mul(plane, outHeight * outWidth))
  w.for(0, outHeight, 1, (row) =>
    w.for(0, outWidth, 1, (column) => {
      body({ plane, output, row, column })
      w.increase(output, 1)
    }),
  )
}

/**
 * body(input cell, counted over all planes) for each cell that the window covers. Without padding a window always lies
 * inside, and its cells are written out one by one.
 */
function forWindow(
  w: PieceWriter,
  { height, width, kernel, stride, padding }: Pool2dDims,
  { plane, row, column }: Cells,
  body: (cell: I32, isFirst: Int) => void,
): void {
  const [top, left] = [w.int(i32.sub(i32.mul(row, stride), padding)), w.int(i32.sub(i32.mul(column, stride), padding))]
  const first = w.int(i32.add(i32.mul(i32.add(i32.mul(plane, height), top), width), left))
  if (padding === 0 && kernel <= 3) {
    for (let y = 0; y < kernel; y++)
      for (let x = 0; x < kernel; x++) body(i32.add(first, y * width + x), Number(x + y === 0))
    return
  }
  const inside = (start: I32, size: number): readonly [I32, I32] => [
    w.int(i32.max(i32.sub(0, start), 0)),
    w.int(i32.min(kernel, i32.sub(size, start))),
  ]
  const [[firstRow, endRow], [firstColumn, endColumn]] = [inside(top, height), inside(left, width)]
  w.for(firstRow, endRow, 1, (y) =>
    w.for(firstColumn, endColumn, 1, (x) =>
      body(
        w.int(i32.add(first, i32.add(i32.mul(y, width), x))),
        i32.and(i32.equal(y, firstRow), i32.equal(x, firstColumn)),
      ),
    ),
  )
}

function shapeOf({ channels, height, width, outHeight, outWidth, kernel, stride, padding }: Pool2dDims) {
  return { channels, height, width, outHeight, outWidth, kernel, stride, padding }
}

function forwardPool(
  name: KernelName,
  dims: Pool2dDims,
  capacity: number,
  value: (w: PieceWriter, cells: Cells) => F32,
): WasmRecipe {
  const { channels, height, width, outHeight, outWidth } = dims
  const each = planesEach(outHeight * outWidth)
  return onePass(name, {
    constants: shapeOf(dims),
    bindings: [
      matrix('x', 'read', capacity * channels, height * width),
      matrix('y', 'write', capacity * channels, outHeight * outWidth),
    ],
    pieces: (samples) => piecesOf(samples * channels, each),
    write: (w) =>
      forPlanes(w, channels, each, (plane) =>
        forCells(w, dims, plane, (cells) => {
          const pooled = w.variable(value(w, cells))
          w.store(w.at('y', cells.output), pooled)
        }),
      ),
  })
}

/** Two by two without padding, four results at a time. */
function isHalving({ kernel, stride, padding, outWidth }: Pool2dDims): boolean {
  return kernel === 2 && stride === 2 && padding === 0 && outWidth >= 4
}

// the divisor is always kernel²: padded cells count as zeros
export const avgpool2dForward: WasmKernel<'avgpool2d.forward'> = (dims, capacity) => {
  const scale = 1 / (dims.kernel * dims.kernel)
  if (isHalving(dims)) return halvedAverage(dims, capacity)
  return forwardPool('avgpool2d.forward', dims, capacity, (w, cells) => {
    const sum = w.variable(float(0))
    forWindow(w, dims, cells, (cell) => w.set(sum, f32.add(sum, f32.load(w.at('x', cell)))))
    return f32.mul(sum, float(scale))
  })
}

function halvedAverage(dims: Pool2dDims, capacity: number): WasmRecipe {
  const { channels, height, width, outHeight, outWidth } = dims
  const each = planesEach(outHeight * outWidth)
  return onePass('avgpool2d.forward', {
    constants: shapeOf(dims),
    bindings: [
      matrix('x', 'read', capacity * channels, height * width),
      matrix('y', 'write', capacity * channels, outHeight * outWidth),
    ],
    pieces: (samples) => piecesOf(samples * channels, each),
    write: (w) =>
      forPlanes(w, channels, each, (plane) =>
        w.for(0, outHeight, 1, (row) => {
          const upper = w.int(w.at('x', i32.mul(i32.add(i32.mul(plane, height), i32.mul(row, 2)), width)))
          const lower = w.int(elementOf(upper, width))
          const y = w.int(w.at('y', i32.mul(i32.add(i32.mul(plane, outHeight), row), outWidth)))
          fillRow(w, outWidth, y, (column) => {
            const both = (at: number) => {
              const place = i32.mul(column, 2)
              const from = i32.add(place, at)
              return w.variable(v128.add(v128.load(elementOf(upper, from)), v128.load(elementOf(lower, from))))
            }
            const [low, high] = [both(0), both(4)]
            const [even, odd] = [v128.shuffle(low, high, 0, 2, 4, 6), v128.shuffle(low, high, 1, 3, 5, 7)]
            return v128.mul(v128.add(even, odd), v128.constant(0.25))
          })
        }),
      ),
  })
}

/** Index and value of the window's largest cell: cells outside never win, the first of equal ones does. */
function largest(
  w: PieceWriter,
  dims: Pool2dDims,
  cells: Cells,
): { readonly cell: Local<'i32'>; readonly value: Local<'f32'> } {
  const cell = w.int(0)
  const value = w.variable(float(0))
  forWindow(w, dims, cells, (next, isFirst) => {
    const place = w.int(next)
    const found = w.variable(f32.load(w.at('x', place)))
    const wins = w.int(isFirst === 1 ? 1 : i32.max(f32.greater(found, value), isFirst))
    w.set(cell, select<'i32'>(place, cell, wins))
    w.set(value, select<'f32'>(found, value, wins))
  })
  return { cell, value }
}

export const maxpool2dForward: WasmKernel<'maxpool2d.forward'> = (dims, capacity) =>
  forwardPool('maxpool2d.forward', dims, capacity, (w, cells) => largest(w, dims, cells).value)

type BackwardDims = Pool2dDims & DerivativeDims

function backwardPool(
  name: KernelName,
  dims: BackwardDims,
  capacity: number,
  {
    inputs,
    give,
  }: { readonly inputs: readonly ('x' | 'activated')[]; give(w: PieceWriter, cells: Cells, d: F32): void },
): WasmRecipe {
  const { channels, height, width, outHeight, outWidth } = dims
  const size = height * width
  const each = planesEach(size)
  return onePass(name, {
    constants: { ...shapeOf(dims), ...epilogueOf(dims) },
    bindings: [
      ...inputs.map((input) => matrix(input, 'read', capacity * channels, size)),
      matrix('dy', 'read', capacity * channels, outHeight * outWidth),
      matrix('dx', 'write', capacity * channels, size),
    ],
    pieces: (samples) => piecesOf(samples * channels, each),
    write: (w) =>
      forPlanes(w, channels, each, (plane) => {
        const dx = w.int(w.at('dx', i32.mul(plane, size)))
        w.clear(dx, i32.mul(size, 4))
        forCells(w, dims, plane, (cells) => give(w, cells, w.variable(f32.load(w.at('dy', cells.output)))))
        if (!w.has('activated')) return
        const activated = w.int(w.at('activated', i32.mul(plane, size)))
        fillRow(w, size, dx, (e) =>
          finishedGradient(w, dims, v128.load(elementOf(dx, e)), () => v128.load(elementOf(activated, e))),
        )
      }),
  })
}

export const avgpool2dBackward: WasmKernel<'avgpool2d.backward'> = (dims, capacity, operands) => {
  if (isHalving(dims) && dims.width === 2 * dims.outWidth && dims.height === 2 * dims.outHeight)
    return doubledAverage(dims, capacity, operands.activated !== undefined)
  return backwardPool('avgpool2d.backward', dims, capacity, {
    inputs: operands.activated ? ['activated'] : [],
    give(w, cells, d) {
      const share = w.variable(f32.mul(d, float(1 / (dims.kernel * dims.kernel))))
      forWindow(w, dims, cells, (cell) => w.addFloat(w.int(w.at('dx', cell)), share))
    },
  })
}

/** Each gradient a quarter of its one: no cell belongs to two windows or to none. */
function doubledAverage(dims: BackwardDims, capacity: number, hasActivated: boolean): WasmRecipe {
  const { channels, height, width, outHeight, outWidth } = dims
  const each = planesEach(height * width)
  return onePass('avgpool2d.backward', {
    constants: { ...shapeOf(dims), ...epilogueOf(dims) },
    bindings: [
      ...(hasActivated ? [matrix('activated', 'read', capacity * channels, height * width)] : []),
      matrix('dy', 'read', capacity * channels, outHeight * outWidth),
      matrix('dx', 'write', capacity * channels, height * width),
    ],
    pieces: (samples) => piecesOf(samples * channels, each),
    write: (w) =>
      forPlanes(w, channels, each, (plane) =>
        w.for(0, height, 1, (row) => {
          const line = i32.add(i32.mul(plane, outHeight), i32.divUnsigned(row, 2))
          const dy = w.int(w.at('dy', i32.mul(line, outWidth)))
          const place = w.int(i32.mul(i32.add(i32.mul(plane, height), row), width))
          fillRow(w, width, w.int(w.at('dx', place)), (e) => {
            const two = v128.loadTwo(i32.add(dy, i32.mul(e, 2)))
            const d = v128.mul(v128.shuffle(w.variable(two), w.variable(two), 0, 0, 1, 1), v128.constant(0.25))
            return finishedGradient(w, dims, d, () => v128.load(w.at('activated', i32.add(place, e))))
          })
        }),
      ),
  })
}

export const maxpool2dBackward: WasmKernel<'maxpool2d.backward'> = (dims, capacity, operands) =>
  backwardPool('maxpool2d.backward', dims, capacity, {
    inputs: operands.activated ? ['x', 'activated'] : ['x'],
    give(w, cells, d) {
      const { cell } = largest(w, dims, cells)
      w.addFloat(w.int(w.at('dx', cell)), d)
    },
  })

// x (B, C, plane) → y (B, C)
export const globalavgpoolForward: WasmKernel<'globalavgpool.forward'> = ({ channels, plane: size }, capacity) => {
  const each = planesEach(size)
  return onePass('globalavgpool.forward', {
    constants: { channels, plane: size },
    bindings: [matrix('x', 'read', capacity * channels, size), matrix('y', 'write', capacity, channels)],
    pieces: (samples) => piecesOf(samples * channels, each),
    write: (w) =>
      forPlanes(w, channels, each, (plane) => {
        const x = w.int(w.at('x', i32.mul(plane, size)))
        const [sum] = sumRow(w, size, [(e) => v128.load(elementOf(x, e))])
        w.store(w.at('y', plane), f32.div(sum ?? float(0), float(size)))
      }),
  })
}

export const globalavgpoolBackward: WasmKernel<'globalavgpool.backward'> = ({ channels, plane: size }, capacity) => {
  const each = planesEach(size)
  return onePass('globalavgpool.backward', {
    constants: { channels, plane: size },
    bindings: [matrix('dy', 'read', capacity, channels), matrix('dx', 'write', capacity * channels, size)],
    pieces: (samples) => piecesOf(samples * channels, each),
    write: (w) =>
      forPlanes(w, channels, each, (plane) => {
        const d = w.variable(v128.splat(f32.div(f32.load(w.at('dy', plane)), float(size))))
        fillRow(w, size, w.int(w.at('dx', i32.mul(plane, size))), () => d)
      }),
  })
}

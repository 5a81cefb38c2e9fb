// Matrix products on registers, which all layers with weights, and attention, are made of. Two forms: where the columns
// of b lie side by side (`product`), each element of a meets eight of them; where both operands run along the sum
// (`dotProduct`), four products are added up apart, and together at the end.
// Eight vectors of results at a time: V8 keeps no more of them in registers.
import type { FunctionWriter, Local } from './function.ts'
import { FLOAT_BYTES, type WasmOptions } from './pass.ts'
import { i32, type I32, int, type Int, v128, type V128 } from './values.ts'

const VECTOR = 4
const VECTOR_BYTES = 16
const TILE_ROWS = 4
const TILE_VECTORS = 2
export const PANEL = TILE_VECTORS * VECTOR

export function multiplyAdd({ relaxed }: WasmOptions, a: V128, b: V128, c: V128): V128 {
  return relaxed ? v128.relaxedMultiplyAdd(a, b, c) : v128.add(c, v128.mul(a, b))
}

interface ProductParts {
  readonly rows: Int
  readonly columns: Int
  /** length of the sums */
  readonly steps: Int
  readonly options: WasmOptions
  /** takes four results, of a row and of columns from `column` on: as many as there are columns count */
  put(row: I32, column: I32, sums: V128): void
}

interface OuterProduct extends ProductParts {
  /** element (row, step) is at address + row · rowBytes + step · stepBytes */
  readonly a: { readonly address: I32; readonly rowBytes: number; readonly stepBytes: number }
  /** element (step, column) is at address + step · stepBytes + column · 4 */
  readonly b: { readonly address: I32; readonly stepBytes: number; readonly panelBytes?: number }
}

/** put(row, column, Σ a(row, step) · b(step, column)) */
export function product(f: FunctionWriter, parts: OuterProduct): void {
  const { columns, rows, b } = parts
  const { panelBytes = PANEL * FLOAT_BYTES } = b
  f.for(0, i32.divUnsigned(i32.add(columns, PANEL - 1), PANEL), 1, (panel) => {
    const column = f.int(i32.mul(panel, PANEL))
    const panelAddress = f.int(i32.add(b.address, i32.mul(panel, panelBytes)))
    const tile = (row: I32, height: number, vectors: number): void =>
      outerTile(f, { ...parts, row, column, panelAddress, height, vectors })
    const isNarrow = typeof columns === 'number' && columns <= VECTOR
    forRows(f, rows, (row, height) => tile(row, height, isNarrow ? 1 : TILE_VECTORS))
  })
}

/** Tiles of four rows, then of two and of one. */
function forRows(f: FunctionWriter, rows: Int, tile: (row: I32, height: number) => void, most = TILE_ROWS): void {
  const whole = i32.mul(i32.divUnsigned(rows, most), most)
  f.for(0, whole, most, (row) => tile(row, most))
  let start = whole
  for (let height = most / 2; height >= 1; height /= 2) {
    const from = start
    const isLeft = i32.notEqual(i32.and(rows, height), 0)
    f.if(isLeft, () => tile(f.int(from), height))
    start = i32.add(from, i32.and(rows, height))
  }
}

interface OuterTile extends OuterProduct {
  readonly row: I32
  readonly column: I32
  readonly panelAddress: I32
  readonly height: number
  readonly vectors: number
}

function outerTile(f: FunctionWriter, tile: OuterTile): void {
  const { a, b, row, column, columns, height, vectors, options } = tile
  const sums = Array.from({ length: height * vectors }, () => f.variable(v128.constant(0)))
  const left = f.int(i32.add(a.address, i32.mul(row, a.rowBytes)))
  const right = f.int(tile.panelAddress)
  const factor = f.declare('v128')
  const others = Array.from({ length: vectors }, () => f.declare('v128'))
  f.for(0, tile.steps, 1, () => {
    for (const [j, other] of others.entries()) f.set(other, v128.load(right, j * VECTOR_BYTES))
    for (let i = 0; i < height; i++) {
      f.set(factor, v128.loadSplat(left, i * a.rowBytes))
      for (const [j, other] of others.entries()) {
        const sum = at(sums, i * vectors + j)
        f.set(sum, multiplyAdd(options, factor, other, sum))
      }
    }
    f.increase(left, a.stepBytes)
    f.increase(right, b.stepBytes)
  })
  // the first vector of a panel always has columns
  const isWhole = typeof columns === 'number' && columns % PANEL === 0
  for (let i = 0; i < height; i++)
    for (let j = 0; j < vectors; j++) {
      const place = i32.add(column, j * VECTOR)
      const put = (): void => tile.put(i32.add(row, i), place, at(sums, i * vectors + j))
      if (j === 0 || isWhole) put()
      else f.if(i32.less(place, columns), put)
    }
}

interface DotProduct extends ProductParts {
  /** element (row, step) is at address + row · rowBytes + step · 4 */
  readonly a: { readonly address: I32; readonly rowBytes: number }
  /** element (step, column) is at address + column · columnBytes + step · 4 */
  readonly b: { readonly address: I32; readonly columnBytes: number }
}

/** put(row, column, Σ a(row, step) · b(step, column)) */
export function dotProduct(f: FunctionWriter, parts: DotProduct): void {
  const { rows, columns } = parts
  f.for(0, columns, VECTOR, (column) =>
    forRows(f, rows, (row, height) => dotTile(f, { ...parts, row, column, height }), 2),
  )
}

interface DotTile extends DotProduct {
  readonly row: I32
  readonly column: I32
  readonly height: number
}

function dotTile(f: FunctionWriter, tile: DotTile): void {
  const { a, b, row, column, height, steps, options } = tile
  const sums = Array.from({ length: height * VECTOR }, () => f.variable(v128.constant(0)))
  const left = f.int(i32.add(a.address, i32.mul(row, a.rowBytes)))
  const right = f.int(i32.add(b.address, i32.mul(column, b.columnBytes)))
  const factor = f.declare('v128')
  const others = Array.from({ length: VECTOR }, () => f.declare('v128'))
  const multiply = (load: (address: I32, offset: number) => V128): void => {
    for (const [j, other] of others.entries()) f.set(other, load(right, j * b.columnBytes))
    for (let i = 0; i < height; i++) {
      f.set(factor, load(left, i * a.rowBytes))
      for (const [j, other] of others.entries()) {
        const sum = at(sums, i * VECTOR + j)
        f.set(sum, multiplyAdd(options, factor, other, sum))
      }
    }
  }
  f.for(0, i32.divUnsigned(steps, VECTOR), 1, () => {
    multiply(v128.load)
    f.increase(left, VECTOR_BYTES)
    f.increase(right, VECTOR_BYTES)
  })
  const rest = i32.remUnsigned(steps, VECTOR)
  f.if(i32.notEqual(rest, 0), () => {
    const mask = f.variable(firstLanes(rest))
    multiply((address, offset) => v128.and(v128.load(address, offset), mask))
  })
  for (let i = 0; i < height; i++)
    tile.put(
      i32.add(row, i),
      column,
      added(
        f,
        [0, 1, 2, 3].map((j) => at(sums, i * VECTOR + j)),
      ),
    )
}

/** Ones in the first `count` lanes. */
export function firstLanes(count: Int): V128 {
  const { constant } = int(count)
  if (constant !== undefined) return v128.intConstant(...[0, 1, 2, 3].map((lane) => (lane < constant ? -1 : 0)))
  return v128.intLessUnsigned(v128.intConstant(0, 1, 2, 3), v128.intSplat(count))
}

/** The sums of four vectors, side by side. */
export function added(f: FunctionWriter, vectors: readonly V128[]): V128 {
  const pair = (a: V128, b: V128): Local<'v128'> =>
    f.variable(v128.add(v128.shuffle(a, b, 0, 4, 1, 5), v128.shuffle(a, b, 2, 6, 3, 7)))
  const [low, high] = [pair(at(vectors, 0), at(vectors, 1)), pair(at(vectors, 2), at(vectors, 3))]
  return v128.add(v128.shuffle(low, high, 0, 1, 4, 5), v128.shuffle(low, high, 2, 3, 6, 7))
}

/** Stores the first `count` of four results; more than four is all of them. */
export function storeFirst(f: FunctionWriter, address: I32, what: V128, count: Int): void {
  const place = f.int(address)
  const kept = f.variable(what)
  f.if(
    i32.greaterEqual(count, VECTOR),
    () => f.store(place, kept),
    () =>
      f.if(
        i32.greaterEqual(count, 2),
        () => {
          f.storeTwo(place, kept)
          f.if(i32.equal(count, 3), () => f.storeLane(place, kept, 2, 2 * FLOAT_BYTES))
        },
        () => f.storeLane(place, kept, 0),
      ),
  )
}

export function at<T>(list: readonly T[], index: number): T {
  const found = list[index]
  if (found === undefined) throw new Error(`internal: no element ${index}`)
  return found
}

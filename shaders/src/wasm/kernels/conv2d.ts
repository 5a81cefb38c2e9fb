// Convolutions, sample by sample. x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, H', W'). The input of a
// piece is unfolded into memory of the thread: a line for each of the C/g·K·K weights of a filter, which holds what
// that weight meets in each output cell. All three directions are then products with these lines. Rows of output cells
// are taken in blocks, so that the lines stay in a cache.
import type { Conv2dDims } from '../../kernels.ts'
import { matrix, optional } from '../../recipe.ts'
import { finished, finishedGradient } from '../epilogue.ts'
import { elementOf, fillRow, forRow, partOf, piecesOf, rowBytesFor, STREAM_PIECE, sumRow, VECTOR } from '../loops.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, wasmPass, type WasmRecipe, type WasmKernel } from '../pass.ts'
import { dotProduct, product, storeFirst } from '../products.ts'
import { f32, i32, type I32, type Int, select, v128 } from '../values.ts'
import { epilogueOf } from './linear.ts'

/** Of the lines of a block: half of a small second-level cache. */
const LINES_BYTES = 128 * 1024
/** Sums of gradients that are made side by side, at most, and the memory that all of them take. */
const MAX_PARTIALS = 16
const PARTIALS_FLOATS = 4 * 2 ** 20

/** Everything that follows from the sizes of a convolution. */
interface Sizes extends Conv2dDims {
  /** weights of a filter */
  readonly taps: number
  readonly groupChannels: number
  readonly groupOut: number
  readonly cells: number
  /** of the padded input */
  readonly paddedWidth: number
}

function sizesOf(dims: Conv2dDims): Sizes {
  const groupChannels = dims.channels / dims.groups
  return {
    ...dims,
    groupChannels,
    taps: groupChannels * dims.kernel * dims.kernel,
    groupOut: dims.out / dims.groups,
    cells: dims.outHeight * dims.outWidth,
    paddedWidth: dims.width + 2 * dims.padding + VECTOR,
  }
}

/** TapLines of some rows of output cells, for some channels. */
interface TapLines {
  readonly sizes: Sizes
  readonly channels: number
  /** rows of output cells in a block */
  readonly rows: number
  readonly lineBytes: number
  /** input rows of a block */
  readonly inputRows: number
  readonly inputBytes: number
  readonly scratchBytes: number
}

function linesFor(sizes: Sizes, channels: number): TapLines {
  const { outHeight, outWidth, kernel, stride, paddedWidth } = sizes
  const lines = channels * kernel * kernel
  const fitting = Math.floor(LINES_BYTES / (lines * outWidth * FLOAT_BYTES))
  const rows = Math.max(1, Math.min(outHeight, fitting))
  const lineBytes = rowBytesFor(rows * outWidth)
  const inputRows = (rows - 1) * stride + kernel
  const inputBytes = (channels * inputRows * paddedWidth + 2 * VECTOR) * FLOAT_BYTES
  return { sizes, channels, rows, lineBytes, inputRows, inputBytes, scratchBytes: inputBytes + lines * lineBytes + 64 }
}

/** The constants that set functions of convolutions apart. */
function shapeOf({ channels, height, width, outHeight, outWidth, kernel, stride, padding, out, groups }: Conv2dDims) {
  return { channels, height, width, outHeight, outWidth, kernel, stride, padding, out, groups }
}

interface RowBlock {
  /** first row of output cells */
  readonly first: I32
  readonly rows: I32
  /** output cells */
  readonly cells: I32
}

function forRowBlocks(
  w: PieceWriter,
  { rows, sizes: { outHeight, outWidth } }: TapLines,
  body: (block: RowBlock) => void,
): void {
  w.for(0, outHeight, rows, (first) => {
    const count = w.int(i32.min(i32.sub(outHeight, first), rows))
    body({ first, rows: count, cells: w.int(i32.mul(count, outWidth)) })
  })
}

/**
 * Brings the input of a block into memory of the thread, with zeros around it. `channel`: the first one, counted over
 * all samples.
 */
function padInput(w: PieceWriter, lines: TapLines, channel: I32, { first }: RowBlock): void {
  const { height, width, stride, padding, paddedWidth } = lines.sizes
  const rowBytes = paddedWidth * FLOAT_BYTES
  if (padding > 0) w.clear(w.scratch, lines.inputBytes)
  w.for(0, lines.channels, 1, (c) => {
    const from = w.int(i32.sub(i32.mul(first, stride), padding))
    const start = w.int(i32.max(i32.sub(0, from), 0))
    const end = w.int(i32.min(lines.inputRows, i32.sub(height, from)))
    w.for(start, end, 1, (row) => {
      const plane = i32.add(i32.mul(i32.add(channel, c), height), i32.add(from, row))
      const source = w.int(w.at('x', i32.mul(plane, width)))
      const target = i32.add(w.scratch, i32.mul(i32.add(i32.mul(c, lines.inputRows), row), rowBytes))
      const place = w.int(i32.add(target, padding * FLOAT_BYTES))
      fillRow(w, width, place, (element) => v128.load(elementOf(source, element)))
    })
  })
}

/** … and makes its lines of it. */
function unfold(w: PieceWriter, lines: TapLines, channel: I32, block: RowBlock): void {
  padInput(w, lines, channel, block)
  const { outWidth, stride } = lines.sizes
  forTapRows(w, lines, block, (inputRow, lineRow) => {
    fillRow(w, outWidth, lineRow, (element) => strided(w, elementOf(inputRow, i32.mul(element, stride)), stride))
  })
}

/** Four elements at distances of `stride`. */
function strided(w: PieceWriter, address: I32, stride: number) {
  if (stride === 1) return v128.load(address)
  const place = w.int(address)
  if (stride === 2) return v128.shuffle(v128.load(place), v128.load(place, 4 * FLOAT_BYTES), 0, 2, 4, 6)
  const one = (i: number) => v128.loadOne(place, i * stride * FLOAT_BYTES)
  const [low, high] = [v128.shuffle(one(0), one(1), 0, 4, 1, 5), v128.shuffle(one(2), one(3), 0, 4, 1, 5)]
  return v128.shuffle(low, high, 0, 1, 4, 5)
}

/** body(where a tap's row of input cells begins, where its part of the line does) for each tap and row of the block */
function forTapRows(
  w: PieceWriter,
  { sizes, channels, inputRows, inputBytes, lineBytes }: TapLines,
  { rows }: RowBlock,
  body: (inputRow: I32, lineRow: I32) => void,
): void {
  const { kernel, stride, outWidth, paddedWidth } = sizes
  const rowBytes = paddedWidth * FLOAT_BYTES
  w.for(0, channels, 1, (c) => {
    w.for(0, kernel, 1, (ky) => {
      w.for(0, kernel, 1, (kx) => {
        const tap = i32.add(i32.mul(i32.add(i32.mul(c, kernel), ky), kernel), kx)
        const row = i32.add(i32.mul(c, inputRows), ky)
        const input = w.int(i32.add(i32.add(w.scratch, i32.mul(row, rowBytes)), i32.mul(kx, FLOAT_BYTES)))
        const line = w.int(i32.add(i32.add(w.scratch, inputBytes), i32.mul(tap, lineBytes)))
        w.for(0, rows, 1, () => {
          body(input, line)
          w.increase(input, stride * rowBytes)
          w.increase(line, outWidth * FLOAT_BYTES)
        })
      })
    })
  })
}

function linesAt(w: PieceWriter, { inputBytes }: TapLines): I32 {
  return i32.add(w.scratch, inputBytes)
}

export const conv2dForward: WasmKernel<'conv2d.forward'> = (dims, capacity, operands) => {
  const sizes = sizesOf(dims)
  const lines = linesFor(sizes, sizes.groupChannels)
  const { groups, out, outWidth, cells, taps, groupOut, channels } = sizes
  const blocks = piecesOf(dims.outHeight, lines.rows)
  return onePass('conv2d.forward', {
    constants: { ...shapeOf(dims), ...epilogueOf(dims) },
    bindings: [
      matrix('x', 'read', capacity * channels, dims.height * dims.width),
      matrix('weight', 'read', out, taps),
      optional('bias', 'read', out, operands.bias),
      ...(operands.residual ? [matrix('residual', 'read', capacity * out, cells)] : []),
      ...(operands.preactivation ? [matrix('preactivation', 'write', capacity * out, cells)] : []),
      matrix('y', 'write', capacity * out, cells),
    ],
    scratchBytes: lines.scratchBytes,
    pieces: (samples) => samples * groups * blocks,
    write(w) {
      const group = w.int(i32.divUnsigned(w.piece, blocks))
      const { start, end } = partOf(w, i32.remUnsigned(w.piece, blocks), dims.outHeight, lines.rows)
      const rows = w.int(i32.sub(end, start))
      const block: RowBlock = { first: start, rows, cells: w.int(i32.mul(rows, outWidth)) }
      unfold(w, lines, w.int(i32.mul(group, sizes.groupChannels)), block)
      const firstOut = w.int(i32.mul(i32.remUnsigned(group, groups), groupOut))
      const plane = w.int(i32.mul(group, groupOut))
      product(w, {
        options: w.options,
        a: { address: w.at('weight', i32.mul(firstOut, taps)), rowBytes: taps * FLOAT_BYTES, stepBytes: FLOAT_BYTES },
        b: { address: linesAt(w, lines), stepBytes: lines.lineBytes },
        rows: groupOut,
        columns: blocks === 1 ? cells : block.cells,
        steps: taps,
        put(row, column, sum) {
          const cell = i32.add(i32.mul(start, outWidth), column)
          const place = w.int(i32.add(i32.mul(i32.add(plane, row), cells), cell))
          const shifted = w.has('bias') ? v128.add(sum, v128.loadSplat(w.at('bias', i32.add(firstOut, row)))) : sum
          const residual = w.has('residual') ? v128.load(w.at('residual', place)) : undefined
          const left = w.int(i32.sub(block.cells, column))
          const y = finished(w, dims, {
            sum: shifted,
            residual,
            keep: (value) => w.has('preactivation') && storeFirst(w, w.at('preactivation', place), value, left),
          })
          storeFirst(w, w.at('y', place), y, left)
        },
      })
    },
  })
}

/** Channels whose lines a piece of the input's gradient makes at a time: as many as fill a tile. */
function gradientChannels({ groupChannels, kernel, cells }: Sizes): number {
  const fitting = Math.floor(LINES_BYTES / (kernel * kernel * cells * FLOAT_BYTES))
  return Math.max(1, Math.min(groupChannels, fitting))
}

// TapLines of gradients = weightᵀ · dy, which then are folded back: each input cell gets the sum of all that was made
// of it.
export const conv2dInputGradient: WasmKernel<'conv2d.inputGradient'> = (dims, capacity, operands) => {
  const sizes = sizesOf(dims)
  const { groups, out, cells, taps, groupOut, groupChannels, height, width, channels, kernel, padding } = sizes
  const perPiece = gradientChannels(sizes)
  const chunks = piecesOf(groupChannels, perPiece)
  const lines = linesFor(sizes, perPiece)
  const paddedRows = height + 2 * padding + sizes.stride + kernel
  const paddedBytes = (perPiece * paddedRows * sizes.paddedWidth + 2 * VECTOR) * FLOAT_BYTES
  const whole: TapLines = { ...lines, inputRows: paddedRows, inputBytes: paddedBytes }
  return onePass('conv2d.inputGradient', {
    constants: { ...shapeOf(dims), ...epilogueOf(dims) },
    bindings: [
      matrix('weight', 'read', out, taps),
      matrix('dy', 'read', capacity * out, cells),
      ...(operands.activated ? [matrix('activated', 'read', capacity * channels, height * width)] : []),
      matrix('dx', 'write', capacity * channels, height * width),
    ],
    scratchBytes: paddedBytes + perPiece * kernel * kernel * lines.lineBytes + 64,
    pieces: (samples) => samples * groups * chunks,
    write(w) {
      const group = w.int(i32.divUnsigned(w.piece, chunks))
      const chunk = partOf(w, i32.remUnsigned(w.piece, chunks), groupChannels, perPiece)
      const made = w.int(i32.sub(chunk.end, chunk.start))
      const firstOut = i32.mul(i32.remUnsigned(group, groups), groupOut)
      const weights = w.at('weight', i32.add(i32.mul(firstOut, taps), i32.mul(chunk.start, kernel * kernel)))
      w.clear(w.scratch, paddedBytes)
      forRowBlocks(w, lines, (block) => {
        const first = i32.add(i32.mul(i32.mul(group, groupOut), cells), i32.mul(block.first, dims.outWidth))
        product(w, {
          options: w.options,
          a: { address: weights, rowBytes: FLOAT_BYTES, stepBytes: taps * FLOAT_BYTES },
          b: { address: w.int(w.at('dy', first)), stepBytes: cells * FLOAT_BYTES },
          rows: chunks === 1 ? taps : w.int(i32.mul(made, kernel * kernel)),
          columns: lines.rows === dims.outHeight ? cells : block.cells,
          steps: groupOut,
          put: (row, column, sum) =>
            w.store(elementOf(i32.add(linesAt(w, whole), i32.mul(row, lines.lineBytes)), column), sum),
        })
        fold(w, { ...whole, channels: made }, block)
      })
      const channel = w.int(i32.add(i32.mul(group, groupChannels), chunk.start))
      w.for(0, made, 1, (c) =>
        w.for(0, height, 1, (row) => {
          const padded = i32.add(
            i32.mul(i32.add(i32.mul(c, paddedRows), i32.add(row, padding)), sizes.paddedWidth),
            padding,
          )
          const source = w.int(elementOf(w.scratch, padded))
          const place = w.int(i32.mul(i32.add(i32.mul(i32.add(channel, c), height), row), width))
          fillRow(w, width, w.int(w.at('dx', place)), (element) =>
            finishedGradient(w, dims, v128.load(elementOf(source, element)), () =>
              v128.load(w.at('activated', i32.add(place, element))),
            ),
          )
        }),
      )
    },
  })
}

/** The reverse of unfold, into the padded input of the whole channels. */
function fold(w: PieceWriter, lines: Omit<TapLines, 'channels'> & { readonly channels: I32 }, block: RowBlock): void {
  const { outWidth, stride, kernel, paddedWidth } = lines.sizes
  const rowBytes = paddedWidth * FLOAT_BYTES
  w.for(0, lines.channels, 1, (c) => {
    w.for(0, kernel, 1, (ky) => {
      w.for(0, kernel, 1, (kx) => {
        const tap = i32.add(i32.mul(i32.add(i32.mul(c, kernel), ky), kernel), kx)
        const inputRow = i32.add(i32.add(i32.mul(c, lines.inputRows), ky), i32.mul(block.first, stride))
        const input = w.int(i32.add(i32.add(w.scratch, i32.mul(inputRow, rowBytes)), i32.mul(kx, FLOAT_BYTES)))
        const line = w.int(i32.add(i32.add(w.scratch, lines.inputBytes), i32.mul(tap, lines.lineBytes)))
        w.for(0, block.rows, 1, () => {
          if (stride === 1) addRow(w, input, line, outWidth)
          else
            w.for(0, outWidth, 1, (element) =>
              w.addFloat(w.int(elementOf(input, i32.mul(element, stride))), f32.load(elementOf(line, element))),
            )
          w.increase(input, stride * rowBytes)
          w.increase(line, outWidth * FLOAT_BYTES)
        })
      })
    })
  })
}

/** to += from, where the thread owns what lies behind `to` as well */
function addRow(w: PieceWriter, to: I32, from: I32, count: number): void {
  forRow(w, count, (element, _, mask) => {
    const place = w.int(elementOf(to, element))
    const more = v128.load(elementOf(from, element))
    w.store(place, v128.add(v128.load(place), mask ? v128.and(more, mask) : more))
  })
}

// dweight (O, taps) += Σ_samples dy · linesᵀ; dbias (O,) += Σ dy. Some sums at a time, each over samples side by side,
// and then their sum.
export const conv2dParameterGradient: WasmKernel<'conv2d.parameterGradient'> = (
  dims,
  capacity,
  operands,
): WasmRecipe => {
  const sizes = sizesOf(dims)
  const lines = linesFor(sizes, sizes.groupChannels)
  const { out, taps, groups, cells, channels } = sizes
  const partialSize = out * taps + (operands.dbias ? out : 0)
  const partials = Math.max(1, Math.min(capacity, MAX_PARTIALS, Math.floor(PARTIALS_FLOATS / partialSize)))
  const samplesEach = Math.ceil(capacity / partials)
  const partial = matrix('partial', 'write', partials, partialSize)
  const constants = { ...shapeOf(dims), partialSize, samplesEach }
  return {
    scratch: { partial: partials * partialSize + 2 * VECTOR },
    passes: [
      wasmPass('conv2d.parameterGradient', {
        constants,
        bindings: [
          matrix('x', 'read', capacity * channels, dims.height * dims.width),
          matrix('dy', 'read', capacity * out, cells),
          partial,
        ],
        scratchBytes: lines.scratchBytes,
        pieces: (samples) => piecesOf(samples, samplesEach) * groups,
        write: (w) =>
          partialGradient(w, sizes, lines, { samplesEach, partialSize, hasBias: operands.dbias !== undefined }),
      }),
      wasmPass('conv2d.parameterGradient sum', {
        constants,
        bindings: [
          { ...partial, access: 'read' },
          { ...matrix('dweight', 'update', out, taps), covers: true },
          optional('dbias', 'update', out, operands.dbias),
        ],
        pieces: () => piecesOf(partialSize, STREAM_PIECE),
        write: (w) => sumPartials(w, sizes, { samplesEach, partialSize }),
      }),
    ],
  }
}

interface Partials {
  readonly samplesEach: number
  readonly partialSize: number
}

function partialGradient(
  w: PieceWriter,
  sizes: Sizes,
  lines: TapLines,
  { samplesEach, partialSize, hasBias }: Partials & { readonly hasBias: boolean },
): void {
  const { groups, groupOut, groupChannels, taps, cells, outWidth, out } = sizes
  const sum = w.int(i32.divUnsigned(w.piece, groups))
  const group = w.int(i32.remUnsigned(w.piece, groups))
  const { start, end } = partOf(w, sum, w.samples, samplesEach)
  const gradient = w.int(w.at('partial', i32.add(i32.mul(sum, partialSize), i32.mul(group, groupOut * taps))))
  const biases = w.int(
    w.at('partial', i32.add(i32.mul(sum, partialSize), i32.add(out * taps, i32.mul(group, groupOut)))),
  )
  w.for(start, end, 1, (sample) => {
    const place = w.int(i32.add(i32.mul(sample, groups), group))
    forRowBlocks(w, lines, (block) => {
      const joins = w.int(i32.notEqual(i32.add(i32.sub(sample, start), block.first), 0))
      unfold(w, lines, w.int(i32.mul(place, groupChannels)), block)
      const first = i32.add(i32.mul(i32.mul(place, groupOut), cells), i32.mul(block.first, outWidth))
      const dy = w.int(w.at('dy', first))
      const steps: Int = lines.rows === sizes.outHeight ? cells : block.cells
      dotProduct(w, {
        options: w.options,
        a: { address: dy, rowBytes: cells * FLOAT_BYTES },
        b: { address: linesAt(w, lines), columnBytes: lines.lineBytes },
        rows: groupOut,
        columns: taps,
        steps,
        put(row, column, value) {
          const to = w.int(elementOf(gradient, i32.add(i32.mul(row, taps), column)))
          const old = select(v128.load(to), v128.constant(0), joins)
          storeFirst(w, to, v128.add(old, value), i32.sub(taps, column))
        },
      })
      if (hasBias)
        w.for(0, groupOut, 1, (o) => {
          const row = w.int(elementOf(dy, i32.mul(o, cells)))
          const [total] = sumRow(w, steps, [(element) => v128.load(elementOf(row, element))])
          const to = w.int(elementOf(biases, o))
          if (total) w.store(to, f32.add(select(f32.load(to), f32.ofInt(0), joins), total))
        })
    })
  })
}

function sumPartials(w: PieceWriter, { out, taps }: Sizes, { samplesEach, partialSize }: Partials): void {
  const { start, end } = partOf(w, w.piece, partialSize, STREAM_PIECE)
  const count = w.int(i32.divUnsigned(i32.add(w.samples, samplesEach - 1), samplesEach))
  const add = (from: Int, to: Int, name: string, shift: number): void =>
    w.for(from, to, VECTOR, (element) => {
      const total = w.variable(v128.constant(0))
      w.for(0, count, 1, (sum) => {
        w.set(total, v128.add(total, v128.load(w.at('partial', i32.add(i32.mul(sum, partialSize), element)))))
      })
      const place = w.int(w.at(name, i32.sub(element, shift)))
      const old = select(v128.load(place), v128.constant(0), i32.add(w.joins(name), 0))
      storeFirst(w, place, v128.add(old, total), i32.sub(to, element))
    })
  const weights = out * taps
  add(start, w.int(i32.min(end, weights)), 'dweight', 0)
  if (w.has('dbias')) add(w.int(i32.max(start, weights)), end, 'dbias', weights)
}

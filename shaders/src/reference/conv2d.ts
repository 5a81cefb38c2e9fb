// Plain convolution. x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, H', W'). For each sample and group the
// input is unfolded. A tap is one of the C/g·K·K weights of a filter. Its line holds the input values that this weight
// is multiplied by in each output cell. All three directions are then products of lines.

import type { Conv2dDims, DerivativeDims, FinishDims, KernelOperands } from '../kernels.ts'
import { finish, finishGradient } from './finish.ts'
import { addScaled, dot, rowsOf } from './rows.ts'
import { positionsInside, type WindowAxis } from './window.ts'

type Conv2dOperands<K extends 'forward' | 'inputGradient' | 'parameterGradient'> = KernelOperands<
  `conv2d.${K}`,
  Float32Array
>

export function conv2dForward(
  dims: Conv2dDims & FinishDims,
  samples: number,
  { x, weight, bias, residual, preactivation, y }: Conv2dOperands<'forward'>,
): void {
  const filters = rowsOf(weight, dims.out, tapsOf(dims))
  const lines = emptyLines(dims)
  forEachGroup(dims, samples, y, ({ channel, outputs }) => {
    unfold(dims, x, channel, lines)
    for (const { o, row } of outputs) {
      row.fill(bias?.[o] ?? 0)
      for (const [tap, line] of lines.entries()) addScaled(row, line, filters[o]?.[tap] ?? 0)
    }
  })
  finish(dims, { size: samples * dims.out * dims.outHeight * dims.outWidth, residual, preactivation, y })
}

export function conv2dInputGradient(
  dims: Conv2dDims & DerivativeDims,
  samples: number,
  { weight, dy, activated, dx }: Conv2dOperands<'inputGradient'>,
): void {
  const filters = rowsOf(weight, dims.out, tapsOf(dims))
  const lines = emptyLines(dims)
  dx.fill(0, 0, samples * dims.channels * dims.height * dims.width)
  forEachGroup(dims, samples, dy, ({ channel, outputs }) => {
    for (const [tap, line] of lines.entries()) {
      line.fill(0)
      for (const { o, row } of outputs) addScaled(line, row, filters[o]?.[tap] ?? 0)
    }
    addFolded(dims, lines, channel, dx)
  })
  finishGradient(dims, { size: samples * dims.channels * dims.height * dims.width, activated, dx })
}

export function conv2dParameterGradient(
  dims: Conv2dDims,
  samples: number,
  { x, dy, dweight, dbias }: Conv2dOperands<'parameterGradient'>,
): void {
  const gradients = rowsOf(dweight, dims.out, tapsOf(dims))
  const lines = emptyLines(dims)
  forEachGroup(dims, samples, dy, ({ channel, outputs }) => {
    unfold(dims, x, channel, lines)
    for (const { o, row } of outputs) {
      const gradient = gradients[o]
      for (const [tap, line] of lines.entries()) if (gradient) gradient[tap] = (gradient[tap] ?? 0) + dot(row, line)
      if (dbias) dbias[o] = (dbias[o] ?? 0) + row.reduce((sum, value) => sum + value, 0)
    }
  })
}

function tapsOf({ channels, groups, kernel }: Conv2dDims): number {
  return (channels / groups) * kernel * kernel
}

/** One line per tap of a group, one element per output cell. */
function emptyLines(dims: Conv2dDims): Float32Array[] {
  const cells = dims.outHeight * dims.outWidth
  return rowsOf(new Float32Array(tapsOf(dims) * cells), tapsOf(dims), cells)
}

/** A group of one sample: its first channel, counted over all samples, and its rows of y. */
interface ChannelGroup {
  readonly channel: number
  readonly outputs: readonly { readonly o: number; readonly row: Float32Array }[]
}

function forEachGroup(dims: Conv2dDims, samples: number, y: Float32Array, visit: (group: ChannelGroup) => void): void {
  const outPerGroup = dims.out / dims.groups
  const rows = rowsOf(y, samples * dims.out, dims.outHeight * dims.outWidth)
  for (let i = 0; i < samples * dims.groups; i++) {
    const outputs = rows.slice(i * outPerGroup, (i + 1) * outPerGroup)
    visit({
      channel: (i * dims.channels) / dims.groups,
      outputs: outputs.map((row, k) => ({ o: (i % dims.groups) * outPerGroup + k, row })),
    })
  }
}

function unfold(dims: Conv2dDims, x: Float32Array, channel: number, lines: readonly Float32Array[]): void {
  for (const line of lines) line.fill(0)
  forEachPiece(dims, channel, ({ tap, xStart, yStart, length }) => {
    const line = lines[tap]
    if (line) for (let i = 0; i < length; i++) line[yStart + i] = x[xStart + i * dims.stride] ?? 0
  })
}

/** The reverse of unfold: each input cell gets the sum of all that was made of it. */
function addFolded(dims: Conv2dDims, lines: readonly Float32Array[], channel: number, x: Float32Array): void {
  forEachPiece(dims, channel, ({ tap, xStart, yStart, length }) => {
    const line = lines[tap]
    for (let i = 0; i < length; i++)
      x[xStart + i * dims.stride] = (x[xStart + i * dims.stride] ?? 0) + (line?.[yStart + i] ?? 0)
  })
}

/** Output cells yStart… of one line whose inputs under a tap are xStart, xStart + stride, … */
interface LinePiece {
  readonly tap: number
  readonly xStart: number
  readonly yStart: number
  readonly length: number
}

function forEachPiece(dims: Conv2dDims, channel: number, visit: (piece: LinePiece) => void): void {
  const { kernel, stride, padding, height, width } = dims
  const down: WindowAxis = { size: height, outSize: dims.outHeight, stride, padding }
  const across: WindowAxis = { size: width, outSize: dims.outWidth, stride, padding }
  for (let tap = 0; tap < tapsOf(dims); tap++) {
    const [ky, kx] = [Math.floor(tap / kernel) % kernel, tap % kernel]
    const plane = (channel + Math.floor(tap / (kernel * kernel))) * height * width
    const [rows, columns] = [positionsInside(ky, down), positionsInside(kx, across)]
    for (let row = rows.first; row < rows.end; row++) {
      const xStart = plane + (row * stride + ky - padding) * width + columns.first * stride + kx - padding
      visit({ tap, xStart, yStart: row * dims.outWidth + columns.first, length: columns.end - columns.first })
    }
  }
}

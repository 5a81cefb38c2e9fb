// Plain convolution. x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, H', W').
// All three directions walk the same rows: those output cells of one line that one weight connects to input cells.

import type { Conv2dDims, FinishDims, KernelOperands } from '../kernels.ts'
import { finish } from './finish.ts'
import { positionsInside, type WindowAxis } from './window.ts'

type Operands<K extends 'forward' | 'inputGradient' | 'parameterGradient'> = KernelOperands<`conv2d.${K}`, Float32Array>

export function conv2dForward(dims: Conv2dDims & FinishDims, samples: number, { x, weight, bias, residual, y }: Operands<'forward'>): void {
  const plane = dims.outHeight * dims.outWidth
  for (let i = 0; i < samples * dims.out; i++) y.fill(bias?.[i % dims.out] ?? 0, i * plane, (i + 1) * plane)
  forEachRow(dims, samples, (w, xStart, yStart, length) => {
    const factor = weight[w] ?? 0
    for (let i = 0; i < length; i++) y[yStart + i] = (y[yStart + i] ?? 0) + factor * (x[xStart + i * dims.stride] ?? 0)
  })
  finish(dims, { size: samples * dims.out * plane, residual, y })
}

export function conv2dInputGradient(dims: Conv2dDims, samples: number, { weight, dy, dx }: Operands<'inputGradient'>): void {
  dx.fill(0, 0, samples * dims.channels * dims.height * dims.width)
  forEachRow(dims, samples, (w, xStart, yStart, length) => {
    const factor = weight[w] ?? 0
    for (let i = 0; i < length; i++) dx[xStart + i * dims.stride] = (dx[xStart + i * dims.stride] ?? 0) + factor * (dy[yStart + i] ?? 0)
  })
}

export function conv2dParameterGradient(dims: Conv2dDims, samples: number, { x, dy, dweight, dbias }: Operands<'parameterGradient'>): void {
  forEachRow(dims, samples, (w, xStart, yStart, length) => {
    let sum = 0
    for (let i = 0; i < length; i++) sum += (x[xStart + i * dims.stride] ?? 0) * (dy[yStart + i] ?? 0)
    dweight[w] = (dweight[w] ?? 0) + sum
  })
  if (dbias) addPlaneSums(dims, samples, dy, dbias)
}

function addPlaneSums(dims: Conv2dDims, samples: number, dy: Float32Array, dbias: Float32Array): void {
  const plane = dims.outHeight * dims.outWidth
  for (let i = 0; i < samples * dims.out; i++) {
    let sum = 0
    for (let p = i * plane; p < (i + 1) * plane; p++) sum += dy[p] ?? 0
    dbias[i % dims.out] = (dbias[i % dims.out] ?? 0) + sum
  }
}

/** A line of outputs yStart… that weight `w` connects to the inputs xStart, xStart + stride, … */
type Row = (w: number, xStart: number, yStart: number, length: number) => void

function forEachRow(dims: Conv2dDims, samples: number, row: Row): void {
  const channelsPerGroup = dims.channels / dims.groups
  const outPerGroup = dims.out / dims.groups
  for (let sample = 0; sample < samples; sample++)
    for (let o = 0; o < dims.out; o++)
      for (let c = 0; c < channelsPerGroup; c++) {
        const channel = Math.floor(o / outPerGroup) * channelsPerGroup + c
        const planes = {
          x: (sample * dims.channels + channel) * dims.height * dims.width,
          y: (sample * dims.out + o) * dims.outHeight * dims.outWidth,
          weight: (o * channelsPerGroup + c) * dims.kernel * dims.kernel,
        }
        forEachRowOfPlanes(dims, planes, row)
      }
}

function forEachRowOfPlanes(dims: Conv2dDims, planes: { x: number; y: number; weight: number }, row: Row): void {
  const { kernel, stride, padding } = dims
  const down: WindowAxis = { size: dims.height, outSize: dims.outHeight, stride, padding }
  const across: WindowAxis = { size: dims.width, outSize: dims.outWidth, stride, padding }
  for (let ky = 0; ky < kernel; ky++) {
    const lines = positionsInside(ky, down)
    for (let kx = 0; kx < kernel; kx++) {
      const { first, end } = positionsInside(kx, across)
      for (let line = lines.first; line < lines.end; line++) {
        const xStart = planes.x + (line * stride + ky - padding) * dims.width + first * stride + kx - padding
        row(planes.weight + ky * kernel + kx, xStart, planes.y + line * dims.outWidth + first, end - first)
      }
    }
  }
}

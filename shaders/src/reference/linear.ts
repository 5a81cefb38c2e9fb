// Plain linear layer. x (R, in), weight (out, in), bias (out,) → y (R, out), with R = samples · rows.

import type { KernelOperands, LinearDims } from '../kernels.ts'

type Operands<K extends 'forward' | 'inputGradient' | 'parameterGradient'> = KernelOperands<`linear.${K}`, Float32Array>

export function linearForward(dims: LinearDims, samples: number, { x, weight, bias, y }: Operands<'forward'>): void {
  for (let row = 0; row < samples * dims.rows; row++)
    for (let o = 0; o < dims.out; o++) {
      const product = dot(x, row * dims.in, weight, o * dims.in, dims.in)
      y[row * dims.out + o] = product + (bias?.[o] ?? 0)
    }
}

// dx (R, in) = dy (R, out) · weight (out, in)
export function linearInputGradient(dims: LinearDims, samples: number, { weight, dy, dx }: Operands<'inputGradient'>): void {
  dx.fill(0, 0, samples * dims.rows * dims.in)
  for (let row = 0; row < samples * dims.rows; row++)
    for (let o = 0; o < dims.out; o++)
      addScaled(dx, row * dims.in, weight, o * dims.in, dims.in, dy[row * dims.out + o] ?? 0)
}

// dweight (out, in) += dyᵀ (out, R) · x (R, in);  dbias (out,) += Σ_R dy
export function linearParameterGradient(dims: LinearDims, samples: number, { x, dy, dweight, dbias }: Operands<'parameterGradient'>): void {
  for (let row = 0; row < samples * dims.rows; row++)
    for (let o = 0; o < dims.out; o++) {
      const d = dy[row * dims.out + o] ?? 0
      addScaled(dweight, o * dims.in, x, row * dims.in, dims.in, d)
      if (dbias) dbias[o] = (dbias[o] ?? 0) + d
    }
}

function dot(a: Float32Array, aStart: number, b: Float32Array, bStart: number, length: number): number {
  let sum = 0
  for (let i = 0; i < length; i++) sum += (a[aStart + i] ?? 0) * (b[bStart + i] ?? 0)
  return sum
}

function addScaled(to: Float32Array, toStart: number, from: Float32Array, fromStart: number, length: number, factor: number): void {
  for (let i = 0; i < length; i++) to[toStart + i] = (to[toStart + i] ?? 0) + (from[fromStart + i] ?? 0) * factor
}

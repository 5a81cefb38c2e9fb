// Plain linear layer. x (R, in), weight (out, in), bias (out,) → y (R, out), with R = samples · rows.

import type { DerivativeDims, FinishDims, KernelOperands, LinearDims } from '../kernels.ts'
import { finish, finishGradient } from './finish.ts'
import { addScaled, dot, rowsOf } from './rows.ts'

type LinearOperands<K extends 'forward' | 'inputGradient' | 'parameterGradient'> = KernelOperands<
  `linear.${K}`,
  Float32Array
>

export function linearForward(
  dims: LinearDims & FinishDims,
  samples: number,
  { x, weight, bias, residual, preactivation, y }: LinearOperands<'forward'>,
): void {
  const weights = rowsOf(weight, dims.out, dims.in)
  for (const [r, row] of rowsOf(x, samples * dims.rows, dims.in).entries())
    for (const [o, weightRow] of weights.entries()) y[r * dims.out + o] = dot(row, weightRow) + (bias?.[o] ?? 0)
  finish(dims, { size: samples * dims.rows * dims.out, residual, preactivation, y })
}

// dx (R, in) = dy (R, out) · weight (out, in) · derivative(activated)
export function linearInputGradient(
  dims: LinearDims & DerivativeDims,
  samples: number,
  { weight, dy, activated, dx }: LinearOperands<'inputGradient'>,
): void {
  const weights = rowsOf(weight, dims.out, dims.in)
  for (const [r, row] of rowsOf(dx, samples * dims.rows, dims.in).entries()) {
    row.fill(0)
    for (const [o, weightRow] of weights.entries()) addScaled(row, weightRow, dy[r * dims.out + o] ?? 0)
  }
  finishGradient(dims, { size: samples * dims.rows * dims.in, activated, dx })
}

// dweight (out, in) += dyᵀ (out, R) · x (R, in);  dbias (out,) += Σ_R dy
export function linearParameterGradient(
  dims: LinearDims,
  samples: number,
  { x, dy, dweight, dbias }: LinearOperands<'parameterGradient'>,
): void {
  const gradients = rowsOf(dweight, dims.out, dims.in)
  for (const [r, row] of rowsOf(x, samples * dims.rows, dims.in).entries())
    for (const [o, gradient] of gradients.entries()) {
      const d = dy[r * dims.out + o] ?? 0
      addScaled(gradient, row, d)
      if (dbias) dbias[o] = (dbias[o] ?? 0) + d
    }
}

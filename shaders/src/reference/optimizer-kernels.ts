// The optimizers as kernels, with their numbers in a vector `settings` that changes from step to step without a new
// shader.

import type { FlatDims, KernelOperands } from '../kernels.ts'
import { adam } from './adamw.ts'
import { sgd } from './sgd.ts'
import { sumOfSquares } from './sum-of-squares.ts'

/** Elements of `settings`; the rest is reserved. */
export const SETTINGS_LENGTH = 8

// settings: lr, momentum, weight decay, 1 for Nesterov
export function sgdUpdate(_: FlatDims, __: number, operands: KernelOperands<'sgd.update', Float32Array>): void {
  const [lr = 0, momentum = 0, weightDecay = 0, nesterov = 0] = operands.settings
  sgd({ lr, momentum, weightDecay, nesterov: nesterov === 1 }, operands, operands.gradient, operands)
}

// settings: lr, β₁, β₂, eps, weight decay, 1 if it is decoupled, β₁ᵗ, β₂ᵗ
export function adamwUpdate(_: FlatDims, __: number, operands: KernelOperands<'adamw.update', Float32Array>): void {
  const [lr = 0, beta1 = 0, beta2 = 0, eps = 0, weightDecay = 0, decoupled = 0, beta1Power = 0, beta2Power = 0] =
    operands.settings
  adam(
    { lr, beta1, beta2, eps, weightDecay, decoupled: decoupled === 1, beta1Power, beta2Power },
    operands,
    operands.gradient,
    operands,
  )
}

export function sumOfSquaresSum(
  { length }: FlatDims,
  _: number,
  { x, y }: KernelOperands<'sum_of_squares.sum', Float32Array>,
): void {
  y[0] = sumOfSquares(x.subarray(0, length))
}

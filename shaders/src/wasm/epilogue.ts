// Activations and their derivatives on four results, as rows of their kernels and as epilogues of products.
import type { Activation, DerivativeDims, FinishDims } from '../kernels.ts'
import type { FunctionWriter } from './function.ts'
import { sigmoid, tanh } from './mathematics.ts'
import { v128, type V128 } from './values.ts'

const { constant } = v128

interface ActivationRule {
  apply(f: FunctionWriter, x: V128, slope: number): V128
  /** read off the output */
  derivative(f: FunctionWriter, y: V128, dy: V128, slope: number): V128
}

/** NaN passes through relu both ways, so that a diverged model shows in its loss. */
export const ACTIVATIONS: { readonly [A in Activation]: ActivationRule } = {
  relu: {
    apply: (f, of) => {
      const x = f.variable(of)
      return v128.andNot(x, v128.less(x, constant(0)))
    },
    derivative: (_, y, dy) => v128.andNot(dy, v128.lessEqual(y, constant(0))),
  },
  tanh: {
    apply: (f, x) => tanh(f, x),
    derivative: (f, of, dy) => {
      const y = f.variable(of)
      return v128.mul(dy, v128.sub(constant(1), v128.mul(y, y)))
    },
  },
  sigmoid: {
    apply: (f, x) => sigmoid(f, x),
    derivative: (f, of, dy) => {
      const y = f.variable(of)
      return v128.mul(v128.mul(dy, y), v128.sub(constant(1), y))
    },
  },
  leaky_relu: {
    apply: (f, of, slope) => {
      const x = f.variable(of)
      return v128.choose(v128.greater(x, constant(0)), x, v128.mul(x, constant(slope)))
    },
    derivative: (f, y, of, slope) => {
      const dy = f.variable(of)
      return v128.choose(v128.greater(y, constant(0)), dy, v128.mul(dy, constant(slope)))
    },
  },
}

/** y = activation(sum + residual) */
export function finished(
  f: FunctionWriter,
  { activation, slope = 0 }: FinishDims,
  sum: V128,
  residual: V128 | undefined,
): V128 {
  const whole = residual ? v128.add(sum, residual) : sum
  return activation ? ACTIVATIONS[activation].apply(f, whole, slope) : whole
}

/** dx = gradient · derivative(activated) */
export function finishedGradient(
  f: FunctionWriter,
  { derivative, slope = 0 }: DerivativeDims,
  gradient: V128,
  activated: () => V128,
): V128 {
  return derivative ? ACTIVATIONS[derivative].derivative(f, activated(), gradient, slope) : gradient
}

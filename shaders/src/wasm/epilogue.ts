// Activations and their derivatives on four results, as rows of their kernels and as epilogues of products.
import type { Activation, DerivativeDims, FinishDims } from '../kernels.ts'
import type { FunctionWriter } from './function.ts'
import { exp, normalDensity, normalDistribution, sigmoid, tanh } from './mathematics.ts'
import { v128, type V128 } from './values.ts'

const { constant, add, sub, mul } = v128

interface ActivationRule {
  apply(f: FunctionWriter, x: V128, slope: number): V128
  /** read off the output, or the input of an InputActivation */
  derivative(f: FunctionWriter, activated: V128, dy: V128, slope: number): V128
}

const ROOT = Math.sqrt(2 / Math.PI)
const CUBIC = 0.044715
/** Beyond, the slope is 0 or 1 to all digits, and squares of what is larger would overflow. */
const GELU_ENDS = 30

/** (1 + tanh u) / 2 with u = √(2/π) · (x + 0.044715 x³), without the cancellation near −1 */
function geluShare(f: FunctionWriter, x: V128): V128 {
  const u = mul(mul(x, constant(-2 * ROOT)), add(constant(1), mul(mul(x, x), constant(CUBIC))))
  return v128.div(constant(1), add(constant(1), exp(f, u)))
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
      return mul(dy, sub(constant(1), mul(y, y)))
    },
  },
  sigmoid: {
    apply: (f, x) => sigmoid(f, x),
    derivative: (f, of, dy) => {
      const y = f.variable(of)
      return mul(mul(dy, y), sub(constant(1), y))
    },
  },
  leaky_relu: {
    apply: (f, of, slope) => {
      const x = f.variable(of)
      return v128.choose(v128.greater(x, constant(0)), x, mul(x, constant(slope)))
    },
    derivative: (f, y, of, slope) => {
      const dy = f.variable(of)
      return v128.choose(v128.greater(y, constant(0)), dy, mul(dy, constant(slope)))
    },
  },
  gelu: {
    apply(f, of) {
      const x = f.variable(of)
      return mul(x, normalDistribution(f, x))
    },
    derivative(f, of, dy) {
      const x = f.variable(of)
      return mul(dy, add(normalDistribution(f, x), mul(x, normalDensity(f, x))))
    },
  },
  gelu_tanh: {
    apply(f, of) {
      const x = f.variable(of)
      return mul(x, geluShare(f, x))
    },
    derivative(f, of, dy) {
      const x = f.variable(v128.min(v128.max(of, constant(-GELU_ENDS)), constant(GELU_ENDS)))
      const share = f.variable(geluShare(f, x))
      const inner = add(constant(1), mul(mul(x, x), constant(3 * CUBIC)))
      const slope = mul(mul(mul(mul(x, constant(2 * ROOT)), share), sub(constant(1), share)), inner)
      return mul(dy, add(share, slope))
    },
  },
  silu: {
    apply(f, of) {
      const x = f.variable(of)
      return mul(x, sigmoid(f, x))
    },
    derivative(f, of, dy) {
      const x = f.variable(of)
      const share = f.variable(sigmoid(f, x))
      return mul(dy, mul(share, add(constant(1), mul(x, sub(constant(1), share)))))
    },
  },
}

interface ProductSum {
  readonly sum: V128
  readonly residual: V128 | undefined
  /** stores what goes into the activation */
  keep(preactivation: V128): void
}

/** y = activation(preactivation) with preactivation = sum + residual */
export function finished(
  f: FunctionWriter,
  { activation, slope = 0 }: FinishDims,
  { sum, residual, keep }: ProductSum,
): V128 {
  const preactivation = residual ? add(sum, residual) : sum
  if (!activation) return preactivation
  const kept = f.variable(preactivation)
  keep(kept)
  return ACTIVATIONS[activation].apply(f, kept, slope)
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

// Epilogues: what fusion lets a product, or a gradient, do to its results before it stores them.

import type { Activation, DerivativeDims, FinishDims } from '../kernels.ts'
import { matrix, real, type MatrixBinding, type Pass } from '../recipe.ts'

/** The matrix of results and, where one is added, the residual. */
export function finishedMatrix(
  name: string,
  {
    rows,
    columns,
    residual,
    activation,
  }: { rows: number; columns: number; residual: unknown; activation: Activation | undefined },
): MatrixBinding[] {
  const target = {
    ...matrix(name, 'write', rows, columns),
    operand: 'y',
    finish: { residual: residual !== undefined, activation },
  }
  return residual === undefined ? [target] : [matrix('residual', 'read', rows, columns), target]
}

/** The matrix of a gradient and, where it passes through an activation, that activation's output. */
export function gradientMatrix(
  name: string,
  { rows, columns, derivative }: { rows: number; columns: number; derivative: Activation | undefined },
): MatrixBinding[] {
  const target = { ...matrix(name, 'write', rows, columns), operand: 'dx' }
  return derivative === undefined
    ? [target]
    : [matrix('activated', 'read', rows, columns), { ...target, finish: { derivative } }]
}

/** `pass` with the function of its activation, or of the derivative, within its reach. */
export function withFinish(pass: Pass, { activation, derivative, slope }: FinishDims & DerivativeDims): Pass {
  if (activation === undefined && derivative === undefined) return pass
  const constants = slope === undefined ? pass.constants : { ...pass.constants, SLOPE: real(slope) }
  return { ...pass, uses: [...(pass.uses ?? []), 'activations'], constants }
}

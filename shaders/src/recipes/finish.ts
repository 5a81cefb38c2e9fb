// Epilogues: what fusion lets a product, or a gradient, do to its results before it stores them.

import type { Activation, DerivativeDims, FinishDims } from '../kernels.ts'
import { matrix, real, type MatrixBinding, type Pass } from '../recipe.ts'

interface FinishedResult {
  readonly rows: number
  readonly columns: number
  readonly activation: Activation | undefined
  /** the operands of the call: which of them there are */
  readonly operands: { readonly residual?: unknown; readonly preactivation?: unknown }
}

/** The matrix of results and, where they are added or kept, the residual and what went into the activation. */
export function finishedMatrix(
  name: string,
  { rows, columns, activation, operands: { residual, preactivation } }: FinishedResult,
): MatrixBinding[] {
  return [
    ...residualMatrix(residual, rows, columns),
    ...(preactivation === undefined ? [] : [matrix('preactivation', 'write', rows, columns)]),
    {
      ...matrix(name, 'write', rows, columns),
      operand: 'y',
      finish: { residual: residual !== undefined, preactivation: preactivation !== undefined, activation },
    },
  ]
}

/** The matrix of results, or of a gradient, to which a residual may be added. */
export function summedMatrix(name: string, rows: number, columns: number, residual: unknown): MatrixBinding[] {
  const target = { ...matrix(name, 'write', rows, columns), finish: { residual: residual !== undefined } }
  return [...residualMatrix(residual, rows, columns), target]
}

function residualMatrix(residual: unknown, rows: number, columns: number): MatrixBinding[] {
  return residual === undefined ? [] : [matrix('residual', 'read', rows, columns)]
}

/** The matrix of a gradient and, where it passes through an activation, what that one's derivative is read off. */
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

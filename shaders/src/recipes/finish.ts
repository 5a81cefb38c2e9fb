// The epilogue of a product: what fusion lets it do to its results before it stores them.

import type { Activation, FinishDims } from '../kernels.ts'
import { matrix, real, type MatrixBinding, type Pass } from '../recipe.ts'

/** The matrix of results and, where one is added, the residual. */
export function finishedMatrix(
  name: string, { rows, columns, residual, activation }: { rows: number; columns: number; residual: unknown; activation: Activation | undefined },
): MatrixBinding[] {
  const target = { ...matrix(name, 'write', rows, columns), operand: 'y', finish: { residual: residual !== undefined, activation } }
  return residual === undefined ? [target] : [matrix('residual', 'read', rows, columns), target]
}

/** `pass` with the activation's function within its reach. */
export function withFinish(pass: Pass, { activation, slope }: FinishDims): Pass {
  if (activation === undefined) return pass
  const constants = slope === undefined ? pass.constants : { ...pass.constants, SLOPE: real(slope) }
  return { ...pass, uses: [...(pass.uses ?? []), 'activations'], constants }
}

// Images as sequences of tokens, with a learned one before them: one element per invocation, but for the gradient of
// that vector.

import type { TokenDims, TransposeDims } from '../kernels.ts'
import { array, type Binding, matrix, type Pass, type Recipe, STREAM_WORKGROUP } from '../recipe.ts'
import type { MakeRecipe } from '../variants.ts'
import type { ShareRows } from './row-sharing.ts'

// x (B, rows, columns) → y (B, columns, rows)
export function transposeForward({ rows, columns }: TransposeDims, capacity: number): Recipe {
  const size = rows * columns
  return onePass({
    file: 'transpose',
    entryPoint: 'forward',
    constants: { ROWS: rows, COLUMNS: columns },
    bindings: [array('x', 'read', capacity * size), array('y', 'write', capacity * size)],
    threads: (samples) => samples * size,
  })
}

// x (B, size), weight (token,) → y (B, token + size)
export function classTokenForward({ size, token }: TokenDims, capacity: number): Recipe {
  return ofTokens('prepend', { size, token }, (samples) => samples * (token + size), [
    array('x', 'read', capacity * size),
    array('weight', 'read', token),
    array('y', 'write', capacity * (token + size)),
  ])
}

// dy (B, token + size) → dweight (token,)
export function classTokenParameterGradient(share: ShareRows): MakeRecipe<'class_token.parameterGradient'> {
  return ({ size, token }, capacity) => {
    const rows = Math.ceil(token / 4)
    const { sharing, invocations } = share({ steps: capacity, reads: 1, workgroup: STREAM_WORKGROUP, rows })
    const pass: Pass = {
      file: 'tokens',
      ...sharing,
      entryPoint: 'prepended_gradient',
      constants: { SIZE: size, TOKEN: token },
      bindings: [matrix('dy', 'read', capacity, token + size), matrix('dweight', 'update', 1, token)],
      threads: () => invocations(rows),
    }
    return { scratch: {}, passes: [pass] }
  }
}

// dy (B, token) → dx (B, size)
export function firstTokenBackward({ size, token }: TokenDims, capacity: number): Recipe {
  return ofTokens('first_gradient', { size, token }, (samples) => samples * size, [
    array('dy', 'read', capacity * token),
    array('dx', 'write', capacity * size),
  ])
}

function ofTokens(
  entryPoint: string,
  { size, token }: TokenDims,
  threads: Pass['threads'],
  bindings: readonly Binding[],
): Recipe {
  return onePass({ file: 'tokens', entryPoint, constants: { SIZE: size, TOKEN: token }, bindings, threads })
}

function onePass(pass: Omit<Pass, 'workgroup'>): Recipe {
  return { scratch: {}, passes: [{ ...pass, workgroup: STREAM_WORKGROUP }] }
}

// Images as sequences of tokens, with a learned one before them. Plain loops.

import type { KernelOperands, TokenDims, TransposeDims } from '../kernels.ts'

// x (B, rows, columns) → y (B, columns, rows)
export function transposeForward(
  { rows, columns }: TransposeDims,
  samples: number,
  { x, y }: KernelOperands<'transpose.forward', Float32Array>,
): void {
  const size = rows * columns
  for (let sample = 0; sample < samples; sample++)
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        y[sample * size + column * rows + row] = x[sample * size + row * columns + column] ?? 0
}

// x (B, size), weight (token,) → y (B, token + size)
export function classTokenForward(
  { size, token }: TokenDims,
  samples: number,
  { x, weight, y }: KernelOperands<'class_token.forward', Float32Array>,
): void {
  const total = token + size
  for (let sample = 0; sample < samples; sample++) {
    y.set(weight.subarray(0, token), sample * total)
    y.set(x.subarray(sample * size, (sample + 1) * size), sample * total + token)
  }
}

// dweight (token,) += Σ_samples of the first vectors of dy (B, token + size)
export function classTokenParameterGradient(
  { size, token }: TokenDims,
  samples: number,
  { dy, dweight }: KernelOperands<'class_token.parameterGradient', Float32Array>,
): void {
  for (let sample = 0; sample < samples; sample++)
    for (let i = 0; i < token; i++) dweight[i] = (dweight[i] ?? 0) + (dy[sample * (token + size) + i] ?? 0)
}

// dy (B, token) → dx (B, size)
export function firstTokenBackward(
  { size, token }: TokenDims,
  samples: number,
  { dy, dx }: KernelOperands<'first_token.backward', Float32Array>,
): void {
  dx.fill(0, 0, samples * size)
  for (let sample = 0; sample < samples; sample++)
    dx.set(dy.subarray(sample * token, (sample + 1) * token), sample * size)
}

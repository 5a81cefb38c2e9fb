// Plain layer norm and RMS norm over the last dimension: x̂ = (x − mean) · inverse, y = x̂ · weight + bias.
// x (R, columns), with R = samples · rows; RMS norm has neither mean nor bias.

import type { KernelOperands, RowNormDims } from '../kernels.ts'

export function layernormForward(
  dims: RowNormDims,
  samples: number,
  { x, weight, bias, y, mean, inverse }: KernelOperands<'layernorm.forward', Float32Array>,
): void {
  forEachRow(dims, samples, (row, start) => {
    mean[row] = average(dims.columns, (i) => x[start + i] ?? 0)
    normalize(dims, { row, start }, { x, mean, weight, bias, y, inverse })
  })
}

export function rmsnormForward(
  dims: RowNormDims,
  samples: number,
  operands: KernelOperands<'rmsnorm.forward', Float32Array>,
): void {
  forEachRow(dims, samples, (row, start) => normalize(dims, { row, start }, operands))
}

interface RowPlace {
  readonly row: number
  readonly start: number
}

type Normalization = KernelOperands<'rmsnorm.forward', Float32Array> & {
  readonly mean?: Float32Array
  readonly bias?: Float32Array | undefined
}

function normalize(
  { columns, eps }: RowNormDims,
  { row, start }: RowPlace,
  { x, mean, weight, bias, y, inverse }: Normalization,
): void {
  const middle = mean?.[row] ?? 0
  inverse[row] = 1 / Math.sqrt(average(columns, (i) => ((x[start + i] ?? 0) - middle) ** 2) + eps)
  for (let i = 0; i < columns; i++)
    y[start + i] = ((x[start + i] ?? 0) - middle) * (inverse[row] ?? 0) * (weight[i] ?? 0) + (bias?.[i] ?? 0)
}

type InputGradient = KernelOperands<'rmsnorm.inputGradient', Float32Array> & { readonly mean?: Float32Array }

// With g = dy · weight: dx = inverse · (g − average of g − x̂ · average of g·x̂); the first average is the mean's
// doing.
export function rowNormInputGradient(
  dims: RowNormDims,
  samples: number,
  { x, weight, dy, mean, inverse, residual, dx }: InputGradient,
): void {
  const { columns } = dims
  forEachRow(dims, samples, (row, start) => {
    const normalized = (i: number) => ((x[start + i] ?? 0) - (mean?.[row] ?? 0)) * (inverse[row] ?? 0)
    const g = (i: number) => (dy[start + i] ?? 0) * (weight[i] ?? 0)
    const shift = mean ? average(columns, g) : 0
    const slope = average(columns, (i) => g(i) * normalized(i))
    for (let i = 0; i < columns; i++) {
      dx[start + i] = (inverse[row] ?? 0) * (g(i) - shift - normalized(i) * slope)
      if (residual) dx[start + i] = (dx[start + i] ?? 0) + (residual[start + i] ?? 0)
    }
  })
}

type ParameterGradient = KernelOperands<'rmsnorm.parameterGradient', Float32Array> & {
  readonly mean?: Float32Array
  readonly dbias?: Float32Array | undefined
}

export function rowNormParameterGradient(
  dims: RowNormDims,
  samples: number,
  { x, dy, mean, inverse, dweight, dbias }: ParameterGradient,
): void {
  for (let i = 0; i < dims.columns; i++) {
    let [weightSum, biasSum] = [0, 0]
    forEachRow(dims, samples, (row, start) => {
      const d = dy[start + i] ?? 0
      weightSum += d * ((x[start + i] ?? 0) - (mean?.[row] ?? 0)) * (inverse[row] ?? 0)
      biasSum += d
    })
    dweight[i] = (dweight[i] ?? 0) + weightSum
    if (dbias) dbias[i] = (dbias[i] ?? 0) + biasSum
  }
}

function forEachRow(
  { rows, columns }: RowNormDims,
  samples: number,
  visit: (row: number, start: number) => void,
): void {
  for (let row = 0; row < samples * rows; row++) visit(row, row * columns)
}

function average(count: number, value: (i: number) => number): number {
  let sum = 0
  for (let i = 0; i < count; i++) sum += value(i)
  return sum / count
}

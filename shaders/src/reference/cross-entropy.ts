// Plain softmax cross-entropy. x (R, classes), target (R,) → loss (R,), correct (R,), dx (R, classes) = softmax(x) − one-hot.

import type { CrossEntropyDims, KernelOperands } from '../kernels.ts'

type Operands = KernelOperands<'cross_entropy.loss', Float32Array, Int32Array>

export function crossEntropyLoss(dims: CrossEntropyDims, samples: number, { x, target, loss, correct, dx }: Operands): void {
  for (let row = 0; row < samples * dims.rows; row++) {
    const logits = x.subarray(row * dims.classes, (row + 1) * dims.classes)
    const label = target[row] ?? 0
    const best = argMax(logits)
    const top = logits[best] ?? 0
    const sum = logits.reduce((total, value) => total + Math.exp(value - top), 0)
    loss[row] = Math.log(sum) + top - (logits[label] ?? NaN)
    correct[row] = best === label ? 1 : 0
    for (let i = 0; i < dims.classes; i++)
      dx[row * dims.classes + i] = Math.exp((logits[i] ?? 0) - top) / sum - (i === label ? 1 : 0)
  }
}

/** The first of the largest values. */
function argMax(values: Float32Array): number {
  let best = 0
  for (let i = 1; i < values.length; i++) if ((values[i] ?? 0) > (values[best] ?? 0)) best = i
  return best
}

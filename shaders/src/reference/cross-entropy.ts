// Plain softmax cross-entropy with PyTorch's label smoothing and ignored targets.
// x (R, classes), target (R,) → loss (R,), correct (R,), dx (R, classes) = softmax(x) − what is wanted.

import type { CrossEntropyDims, KernelOperands } from '../kernels.ts'

type CrossEntropyOperands = KernelOperands<'cross_entropy.loss', Float32Array, Int32Array>

export function crossEntropyLoss(
  dims: CrossEntropyDims,
  samples: number,
  { x, target, loss, correct, dx }: CrossEntropyOperands,
): void {
  const { classes, smoothing = 0, ignored } = dims
  const spread = smoothing / classes
  for (let row = 0; row < samples * dims.rows; row++) {
    const logits = x.subarray(row * classes, (row + 1) * classes)
    const gradient = dx.subarray(row * classes, (row + 1) * classes)
    const label = target[row] ?? 0
    const counts = label !== ignored
    const best = argMax(logits)
    const top = logits[best] ?? 0
    const logSum = top + Math.log(logits.reduce((total, value) => total + Math.exp(value - top), 0))
    const wanted = (i: number) => spread + (i === label ? 1 - smoothing : 0)
    const surprise =
      logSum - (1 - smoothing) * (logits[label] ?? NaN) - spread * logits.reduce((total, value) => total + value, 0)
    loss[row] = counts ? surprise : 0
    correct[row] = counts && best === label ? 1 : 0
    for (let i = 0; i < classes; i++) gradient[i] = counts ? Math.exp((logits[i] ?? 0) - logSum) - wanted(i) : 0
  }
}

/** The first of the largest values. */
function argMax(values: Float32Array): number {
  let best = 0
  for (let i = 1; i < values.length; i++) if ((values[i] ?? 0) > (values[best] ?? 0)) best = i
  return best
}

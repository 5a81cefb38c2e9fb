// Plain binary cross-entropy of a sigmoid. x and target (B, size) → loss (B,), correct (B,) = outputs on the right side
// of ½, dx (B, size) = sigmoid(x) − target. A target of exactly ½ has no right side.

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'

type BceOperands = KernelOperands<'bce_with_logits.loss', Float32Array>

export function bceWithLogitsLoss(
  { size }: ElementwiseDims,
  samples: number,
  { x, target, loss, correct, dx }: BceOperands,
): void {
  for (let sample = 0; sample < samples; sample++) {
    let [sum, right] = [0, 0]
    for (let i = sample * size; i < (sample + 1) * size; i++) {
      const [value, wanted] = [x[i] ?? 0, target[i] ?? 0]
      sum += Math.max(value, 0) - value * wanted + Math.log1p(Math.exp(-Math.abs(value)))
      right += value * (wanted - 0.5) > 0 ? 1 : 0
      dx[i] = 1 / (1 + Math.exp(-value)) - wanted
    }
    loss[sample] = sum
    correct[sample] = right
  }
}

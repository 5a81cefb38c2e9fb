// Plain softmax cross-entropy with PyTorch's label smoothing and ignored targets.
// x (R, classes), target (R,) → loss (R,), correct (R,), dx (R, classes) = softmax(x) − what is wanted.

import { type CrossEntropyDims, type CrossEntropyPieceDims, type KernelOperands, PIECE_STATE } from '../kernels.ts'

type CrossEntropyOperands<K extends 'loss' | 'look' | 'join' | 'gradient' = 'loss'> = KernelOperands<
  `cross_entropy.${K}`,
  Float32Array,
  Int32Array
>

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

// logits (R, classes), target (R,), before (R, 8) → state (R, 8): top, Σ exp(logit − top), Σ logits, class, target's
export function crossEntropyLook(
  { rows, classes, first }: CrossEntropyPieceDims,
  samples: number,
  { logits, target, before, state }: CrossEntropyOperands<'look'>,
): void {
  for (let row = 0; row < samples * rows; row++) {
    const own = logits.subarray(row * classes, (row + 1) * classes)
    const best = argMax(own)
    const largest = own[best] ?? 0
    const at = row * PIECE_STATE
    const [top = -Infinity, sum = 0, total = 0, place = 0, wanted = 0] = before?.subarray(at, at + PIECE_STATE) ?? []
    const higher = Math.max(top, largest)
    const label = (target[row] ?? 0) - first
    state.set(
      [
        higher,
        sum * Math.exp(top - higher) + own.reduce((all, value) => all + Math.exp(value - higher), 0),
        total + own.reduce((all, value) => all + value, 0),
        largest > top ? first + best : place,
        wanted + (label >= 0 && label < classes ? (own[label] ?? NaN) : 0),
      ],
      at,
    )
  }
}

// state (R, 8), target (R,) → loss (R,), correct (R,), logSums (R,)
export function crossEntropyJoin(
  { rows, classes, smoothing = 0, ignored }: CrossEntropyDims,
  samples: number,
  { state, target, loss, correct, logSums }: CrossEntropyOperands<'join'>,
): void {
  for (let row = 0; row < samples * rows; row++) {
    const [top = 0, sum = 0, total = 0, place = 0, wanted = 0] = state.subarray(row * PIECE_STATE)
    const counts = target[row] !== ignored
    const logSum = top + Math.log(sum)
    loss[row] = counts ? logSum - (1 - smoothing) * wanted - (smoothing / classes) * total : 0
    correct[row] = counts && place === target[row] ? 1 : 0
    logSums[row] = logSum
  }
}

// logits (R, classes), target (R,), logSums (R,) → dx (R, classes)
export function crossEntropyGradient(
  { rows, classes, first, all, smoothing = 0, ignored }: CrossEntropyPieceDims,
  samples: number,
  { logits, target, logSums, dx }: CrossEntropyOperands<'gradient'>,
): void {
  for (let row = 0; row < samples * rows; row++) {
    const label = target[row] ?? 0
    for (let i = 0; i < classes; i++) {
      const wanted = smoothing / all + (first + i === label ? 1 - smoothing : 0)
      const at = row * classes + i
      dx[at] = label === ignored ? 0 : Math.exp((logits[at] ?? 0) - (logSums[row] ?? 0)) - wanted
    }
  }
}

// Loss scaling for gradients stored as f16, where small ones would vanish. Backward starts from a multiple of the
// loss's gradient, and the sums are divided at the end. Scales are powers of two: multiplying and dividing by them is
// exact. Pure.

export interface LossScale {
  readonly scale: number
  /** steps since the scale changed, all finite */
  readonly goodSteps: number
}

/** Backward of a mean over 64 samples starts near 1/64 in f32; sums over samples start near 1. */
export const FIRST_SCALE: LossScale = { scale: 1024, goodSteps: 0 }
/** f16 ends at 65504. */
const LARGEST = 32_768
const GOOD_STEPS_TO_DOUBLE = 200

/** After a step whose gradient was finite. */
export function afterGood({ scale, goodSteps }: LossScale): LossScale {
  if (goodSteps + 1 < GOOD_STEPS_TO_DOUBLE || scale >= LARGEST) return { scale, goodSteps: goodSteps + 1 }
  return { scale: scale * 2, goodSteps: 0 }
}

/** After a step that overflowed: what to repeat it with; undefined when a smaller scale would not help. */
export function afterOverflow({ scale }: LossScale): LossScale | undefined {
  return scale > 1 ? { scale: scale / 2, goodSteps: 0 } : undefined
}

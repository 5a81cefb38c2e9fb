// Plain rotary positions (Su et al., "RoFormer", 2021), on pairs of elements half a head apart. x (R, own, headSize),
// angles (T, headSize): cosines of a position, then its sines ⇄ part of qkv (R, 3, heads, headSize), R = samples · T.

import type { KernelOperands, RotaryDims } from '../kernels.ts'

export function rotaryForward(
  dims: RotaryDims,
  samples: number,
  { x, angles, places, qkv }: KernelOperands<'rotary.forward', Float32Array, Int32Array>,
): void {
  const half = dims.headSize / 2
  forEachPair(dims, samples, { angles, places }, ({ own, packed, cosine, sine }) => {
    const [first, second] = [x[own] ?? 0, x[own + half] ?? 0]
    qkv[packed] = first * cosine - second * sine
    qkv[packed + half] = second * cosine + first * sine
  })
}

// The opposite turn; heads of attention that share one add up.
export function rotaryBackward(
  dims: RotaryDims,
  samples: number,
  { dqkv, angles, dx }: KernelOperands<'rotary.backward', Float32Array>,
): void {
  dx.fill(0, 0, samples * dims.length * dims.own * dims.headSize)
  const half = dims.headSize / 2
  forEachPair(dims, samples, { angles }, ({ own, packed, cosine, sine }) => {
    const [first, second] = [dqkv[packed] ?? 0, dqkv[packed + half] ?? 0]
    dx[own] = (dx[own] ?? 0) + first * cosine + second * sine
    dx[own + half] = (dx[own + half] ?? 0) + second * cosine - first * sine
  })
}

interface RotaryPair {
  /** where its first element lies in x and in qkv */
  readonly own: number
  readonly packed: number
  readonly cosine: number
  readonly sine: number
}

function forEachPair(
  { length, heads, own, headSize, part, turns }: RotaryDims,
  samples: number,
  { angles, places }: { readonly angles: Float32Array; readonly places?: Int32Array | undefined },
  visit: (pair: RotaryPair) => void,
): void {
  const half = headSize / 2
  for (let row = 0; row < samples * length; row++)
    for (let head = 0; head < heads; head++)
      for (let c = 0; c < half; c++) {
        const at = (places?.[row] ?? row % length) * headSize + c
        visit({
          own: (row * own + Math.floor(head / (heads / own))) * headSize + c,
          packed: ((row * 3 + part) * heads + head) * headSize + c,
          cosine: turns ? (angles[at] ?? 0) : 1,
          sine: turns ? (angles[at + half] ?? 0) : 0,
        })
      }
}

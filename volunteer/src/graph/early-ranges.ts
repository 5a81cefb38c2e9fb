// When pieces of the gradient are final: after the last call that writes to them. Pure, for calls and for passes alike.

import type { FloatRange } from '../floats.ts'

/**
 * range → how many calls must have run; never fewer than for the range before it, since ranges are handed out in order.
 * `writes`: what each call adds to.
 */
export function finalAfter(ranges: readonly FloatRange[], writes: readonly (readonly FloatRange[])[]): number[] {
  let lowest = 0
  return ranges.map((range) => {
    lowest = Math.max(lowest, 1 + writes.findLastIndex((written) => written.some((other) => overlap(range, other))))
    return lowest
  })
}

export function overlap(a: FloatRange, b: FloatRange): boolean {
  return a.start < b.end && b.start < a.end
}

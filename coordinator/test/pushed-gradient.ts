// A gradient as a push brings it, without its body.
import type { PushedGradient } from '@starling-grid/model'

/** `writeTo`: Σ gradients, into every element */
export function gradientOf(writeTo: (vector: Float32Array) => void): PushedGradient {
  return { writeTo, writing: (vector) => [writeTo(vector)].values() }
}

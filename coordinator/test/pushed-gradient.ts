// A gradient as a push brings it, without its body.
import { completed, type PushedGradient, runsOf, summingSquares } from '@starling-grid/model'

/** `values`: Σ gradients; `trained`: of them, before the running means and variances */
export function gradientOf(values: Float32Array, trained = values.length): PushedGradient {
  const runs = () => runsOf(values, 0)
  return { runs, squares: completed(summingSquares(runs(), trained)) }
}

// What an exchange of gradients costs, for all who choose by it: hops that take α each, and bytes that take β together
// (Hockney, 1994). Around a ring of N the hops are those of reduce-scatter and all-gather (Patarasuk and Yuan, 2009); a
// direct exchange has two. Either way a member sends 2(N−1)/N of a gradient. Pure; docs/STEPS.md has the formulas.
import { type Exchange, EXCHANGES } from '@starling-grid/protocol'

/** α: ms of one hop whatever it carries; β: ms to carry the whole gradient once. */
export interface HopCost {
  readonly alpha: number
  readonly beta: number
}

/** T = hops·α + 2(N−1)/N·β, once all links are open. */
export function costOf(exchange: Exchange, n: number, { alpha, beta }: HopCost): number {
  return EXCHANGES[exchange].hops(n) * alpha + ((2 * (n - 1)) / n) * beta
}

/** What members exchange over, and what of it. */
export interface Exchanged {
  readonly members: number
  readonly bytes: number
  readonly latencyMs: number
  readonly bytesPerMs: number
}

/**
 * T = 2(N−1)·α + 2(N−1)/N·|G|/B around the ring, and 2α + 2(N−1)/N·|G|/B as a direct exchange, once all links are open.
 */
export function exchangeMs(exchange: Exchange, { members: n, bytes, latencyMs, bytesPerMs }: Exchanged): number {
  return costOf(exchange, n, { alpha: latencyMs, beta: bytes / bytesPerMs })
}

/** What was measured of a step, less its latencies, is what the bytes took. */
export function bytesPerMsOf(
  exchange: Exchange,
  { members: n, exchangeMs: measuredMs }: { readonly members: number; readonly exchangeMs: number },
  { bytes, latencyMs }: { readonly bytes: number; readonly latencyMs: number },
): number {
  const carry = measuredMs - EXCHANGES[exchange].hops(n) * latencyMs
  return carry <= 0 ? Number.POSITIVE_INFINITY : (((2 * (n - 1)) / n) * bytes) / carry
}

/**
 * Least squares over what was measured in rings, neither below 0. `times`: size → ms. One size alone does not tell
 * latency from bandwidth. It is taken for latency, and the shorter ring that follows from it makes the second
 * measurement.
 */
export function fit(times: ReadonlyMap<number, number>): HopCost {
  const points = [...times].map(([size, ms]) => ({ x: 1 / size, y: ms / (2 * (size - 1)) }))
  const n = points.length
  if (n === 0) return { alpha: 0, beta: 0 }
  const [meanX, meanY] = [points.reduce((sum, { x }) => sum + x, 0) / n, points.reduce((sum, { y }) => sum + y, 0) / n]
  const spread = points.reduce((sum, { x }) => sum + (x - meanX) ** 2, 0)
  const slope = spread === 0 ? 0 : points.reduce((sum, { x, y }) => sum + (x - meanX) * (y - meanY), 0) / spread
  if (slope <= 0) return { alpha: meanY, beta: 0 }
  const alpha = meanY - slope * meanX
  return alpha >= 0 ? { alpha, beta: slope } : { alpha: 0, beta: meanX === 0 ? 0 : meanY / meanX }
}

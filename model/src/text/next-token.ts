// How the next token is chosen: a pure function of the logits and the draws of a seed.
import { random32 } from '@starling-grid/protocol'

export interface TokenChoice {
  /** below 1 prefers what is likely, above 1 evens it out; 0: the most likely */
  readonly temperature: number
  /** only the most likely so many can be chosen; all where it is absent */
  readonly topK?: number
  /** only the most likely that make this part of the probability together; all where it is absent */
  readonly topP?: number
}

/** Numbers in [0, 1), the same for the same seed. */
export function draws(seed: number): () => number {
  const word = random32(seed)
  return () => word() / 2 ** 32
}

/** An index of `logits` (vocab,), drawn by its softmax. `draw` is in [0, 1). */
export function nextToken(
  logits: Float32Array,
  { temperature, topK = logits.length, topP = 1 }: TokenChoice,
  draw: number,
): number {
  if (temperature === 0) return logits.indexOf(logits.reduce((most, value) => Math.max(most, value), -Infinity))
  const likely = [...logits.keys()].sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0)).slice(0, topK)
  const top = logits[likely[0] ?? 0] ?? 0
  const weights = nucleus(
    likely.map((index) => Math.exp(((logits[index] ?? 0) - top) / temperature)),
    topP,
  )
  let left = draw * weights.reduce((sum, weight) => sum + weight, 0)
  for (const [i, weight] of weights.entries()) {
    left -= weight
    if (left < 0) return likely[i] ?? 0
  }
  return likely[weights.length - 1] ?? 0
}

/** The first weights, which are the greatest, up to a share of their sum; one at least. */
function nucleus(weights: readonly number[], share: number): readonly number[] {
  if (share >= 1) return weights
  const enough = share * weights.reduce((sum, weight) => sum + weight, 0)
  const kept: number[] = []
  let sum = 0
  for (const weight of weights) {
    kept.push(weight)
    sum += weight
    if (sum >= enough) break
  }
  return kept
}

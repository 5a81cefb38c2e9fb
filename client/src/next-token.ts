// How the next token is chosen: a pure function of the logits and the draws of a seed.
import { random32 } from '@starling-grid/protocol'

export interface TokenChoice {
  /** below 1 prefers what is likely, above 1 evens it out */
  readonly temperature: number
  /** only the most likely so many can be chosen; all where it is absent */
  readonly topK?: number
}

/** Numbers in [0, 1), the same for the same seed. */
export function draws(seed: number): () => number {
  const word = random32(seed)
  return () => word() / 2 ** 32
}

/** An index of `logits` (vocab,), drawn by its softmax. `draw` is in [0, 1). */
export function nextToken(
  logits: Float32Array,
  { temperature, topK = logits.length }: TokenChoice,
  draw: number,
): number {
  const likely = [...logits.keys()].sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0)).slice(0, topK)
  const top = logits[likely[0] ?? 0] ?? 0
  const weights = likely.map((index) => Math.exp(((logits[index] ?? 0) - top) / temperature))
  let left = draw * weights.reduce((sum, weight) => sum + weight, 0)
  for (const [i, weight] of weights.entries()) {
    left -= weight
    if (left < 0) return likely[i] ?? 0
  }
  return likely.at(-1) ?? 0
}

/**
 * What the model sees of a text: its last `context` tokens, with anything after them, since a causal model does not
 * look ahead.
 */
export function contextOf(
  tokens: readonly number[],
  context: number,
): { readonly window: Int32Array<ArrayBuffer>; readonly last: number } {
  const seen = tokens.slice(-context)
  const window = new Int32Array(context)
  window.set(seen)
  return { window, last: seen.length - 1 }
}

// Goes on with a text by computing the whole context for each token: for models whose layers see more than one token at
// a time. The same face as TokenDecoder.
import { type ModelSpec, outputShape } from '@starling-grid/model'
import type { Executor } from './executor.ts'
import type { TokenDecoder } from './token-decoder.ts'

/** What goes on with a text, whichever way. */
export type NextTokens = Pick<TokenDecoder, 'loadParameters' | 'logitsAfter' | 'destroy'>

export function windowDecoder(spec: ModelSpec, executor: Executor): NextTokens {
  const [context = 1, vocab = 1] = outputShape(spec)
  return {
    loadParameters: (flat) => executor.loadParameters(flat),
    async logitsAfter(text) {
      const { window, last } = contextOf(text, context)
      return (await executor.predict(window, 1)).subarray(last * vocab, (last + 1) * vocab)
    },
    destroy: () => executor.destroy(),
  }
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

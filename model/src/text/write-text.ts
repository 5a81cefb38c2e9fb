// Goes on with a text, token by token. What computes the logits, and what shows the text, is the caller's.
import { GridError } from '@starling-grid/protocol'
import { draws, nextToken } from './next-token.ts'
import type { TextTokens } from './text-tokens.ts'

/** What is written where no number of tokens is asked for. */
export const DEFAULT_TOKENS = 500

export interface WritingOptions {
  /** tokens to write (default DEFAULT_TOKENS) */
  readonly tokens?: number
  /** below 1 prefers what is likely, above 1 evens it out; 0: always the most likely (default 0.8) */
  readonly temperature?: number
  /** only the most likely so many tokens; absent: all */
  readonly topK?: number
  /** only the most likely tokens that make this part of the probability together; absent: all */
  readonly topP?: number
  /** of the draws (default 1337): the same text for the same seed */
  readonly seed?: number
}

export interface TextWriter {
  /** Logits (vocab,) of the token after a text that is not empty. */
  readonly logitsAfter: (written: readonly number[]) => Promise<Float32Array>
  readonly tokens: TextTokens
  /** tokens that end an answer */
  readonly ends: readonly number[]
}

/**
 * One piece for each token, empty where a character is not whole yet; the prompt itself is not repeated.
 * @throws GridError 'usage' for an empty prompt, or one that the model has no tokens of
 */
export async function* writtenText(
  { logitsAfter, tokens, ends }: TextWriter,
  prompt: string,
  { tokens: count = DEFAULT_TOKENS, temperature = 0.8, topK, topP, seed = 1337 }: WritingOptions = {},
): AsyncGenerator<string> {
  const written = tokens.encode(prompt)
  if (written.length === 0) throw new GridError('usage', 'expected a prompt, got an empty one; write a line of it')
  const [draw, decode] = [draws(seed), tokens.decoder()]
  const choice = { temperature, ...(topK === undefined ? {} : { topK }), ...(topP === undefined ? {} : { topP }) }
  for (let i = 0; i < count; i++) {
    const logits = await logitsAfter(written)
    // a model may have more tokens than the text had
    const token = nextToken(logits.subarray(0, tokens.size), choice, draw())
    if (ends.includes(token)) return
    written.push(token)
    yield decode(token)
  }
}

// Goes on with a text token by token over any GraphRunner. Independent of devices, tokenizers and choice.

import type { DecoderGraph } from './decoder-graph.ts'
import type { GraphRunner } from './runner.ts'

/** Tokens of one run while a prompt is read: rows enough for a product, scores that stay small. */
export const PROMPT_TOKENS = 32

export class TokenDecoder {
  readonly #graph: DecoderGraph
  readonly #runner: GraphRunner
  /** tokens whose keys and values are kept */
  #text: number[] = []

  constructor(graph: DecoderGraph, runner: GraphRunner) {
    this.#graph = graph
    this.#runner = runner
  }

  get context(): number {
    return this.#graph.context
  }

  loadParameters(flat: Float32Array): void {
    this.#runner.loadParameters(flat)
    this.#text = []
  }

  /**
   * Logits (vocab,) of the token after `text`, which is not empty. What goes on with the text before is computed alone.
   * Of a longer text than the context the last half is seen, until it has grown to the whole again.
   */
  async logitsAfter(text: readonly number[]): Promise<Float32Array> {
    const seen = text.slice(this.#begin(text.length))
    const isContinued = this.#text.length < seen.length && this.#text.every((token, i) => seen[i] === token)
    const known = isContinued ? this.#text.length : 0
    let logits = new Float32Array()
    for (let from = known; from < seen.length; from += this.#runner.capacity)
      logits = await this.#run(seen.slice(from, from + this.#runner.capacity), from)
    this.#text = seen
    return logits
  }

  destroy(): void {
    this.#runner.destroy()
  }

  /** First token that is seen: 0, then in steps of half a context. */
  #begin(length: number): number {
    const half = Math.max(1, Math.floor(this.context / 2))
    return length <= this.context ? 0 : half * Math.ceil((length - this.context) / half)
  }

  async #run(tokens: readonly number[], from: number): Promise<Float32Array<ArrayBuffer>> {
    const { input, places, output } = this.#graph
    const [logits = new Float32Array()] = await this.#runner.run({
      samples: tokens.length,
      write: [
        [input, Int32Array.from(tokens)],
        [places, Int32Array.from(tokens, (_, i) => from + i)],
      ],
      parts: ['evaluation'],
      read: [output],
    })
    return logits.slice((tokens.length - 1) * output.size)
  }
}

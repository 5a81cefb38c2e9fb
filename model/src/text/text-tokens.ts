// Text ⇄ tokens of a model: characters of its vocabulary, bytes, or the pieces of a tokenizer.json.
import { Tokenizer } from '@huggingface/tokenizers'
import { describeError, GridError } from '@starling-grid/protocol'
import type { ModelFile } from '../model-file.ts'

export interface TextTokens {
  /** how many tokens the text has; a model may have more */
  readonly size: number
  /** @throws GridError 'usage' for text that the model has no tokens of */
  encode(text: string): number[]
  /** A function that is given one token after the other, and answers the text that is whole by then. */
  decoder(): (token: number) => string
}

const BYTES = 256
/** What a decoder writes for the beginning of a character. */
const UNFINISHED = '\uFFFD'

/** @throws GridError 'unsupported' of a model that was not trained on text, 'model-invalid' without its tokenizer */
export function textTokens({
  signature,
  vocabulary,
  tokenizer,
}: Pick<ModelFile, 'signature' | 'vocabulary' | 'tokenizer'>): TextTokens {
  if (vocabulary !== undefined) return characters([...vocabulary])
  if (signature.tokens === 'bytes') return bytes()
  if (tokenizer !== undefined) return pieces(tokenizer)
  if (signature.tokens === 'bpe')
    throw new GridError(
      'model-invalid',
      'expected the tokenizer in the metadata of the model, got none; name its tokenizer.json with --tokenizer',
    )
  throw new GridError(
    'unsupported',
    'expected a model that was trained on text, got one of token numbers without a vocabulary; ' +
      'export it from a job on text',
  )
}

function characters(all: readonly string[]): TextTokens {
  const numbers = new Map(all.map((character, number) => [character, number]))
  return {
    size: all.length,
    encode: (text) => [...text].map((character) => numbers.get(character) ?? unknown(character, all)),
    decoder: () => (token) => all[token] ?? '',
  }
}

function unknown(character: string, all: readonly string[]): never {
  throw new GridError(
    'usage',
    `expected characters of ${JSON.stringify(all.join('').slice(0, 300))} in the prompt, ` +
      `got ${JSON.stringify(character)}; leave it out`,
  )
}

function bytes(): TextTokens {
  return {
    size: BYTES,
    encode: (text) => [...new TextEncoder().encode(text)],
    decoder: () => {
      const decoder = new TextDecoder('utf-8')
      return (token) => decoder.decode(Uint8Array.of(token), { stream: true })
    },
  }
}

function pieces(json: string): TextTokens {
  const tokenizer = tokenizerOf(json)
  const size = 1 + [...tokenizer.get_vocab().values()].reduce((greatest, id) => Math.max(greatest, id), 0)
  return {
    size,
    encode: (text) => [...tokenizer.encode(text, { add_special_tokens: false }).ids],
    decoder: () => piecewise((ids) => tokenizer.decode(ids)),
  }
}

function tokenizerOf(json: string): Tokenizer {
  try {
    return new Tokenizer(JSON.parse(json) as object, {})
  } catch (cause) {
    throw new GridError(
      'model-invalid',
      `expected a tokenizer.json of Hugging Face, got: ${describeError(cause)}; name another with --tokenizer`,
      { cause },
    )
  }
}

/**
 * Pieces may hold parts of characters, and begin differently at the beginning of a text: earlier ones are kept for it.
 */
function piecewise(decode: (ids: number[]) => string): (token: number) => string {
  let kept: number[] = []
  let told = 0
  return (token) => {
    kept.push(token)
    const before = told === 0 ? '' : decode(kept.slice(0, told))
    const now = decode(kept)
    if (now.length <= before.length || now.endsWith(UNFINISHED)) return ''
    kept = kept.slice(told)
    told = kept.length
    return now.slice(before.length)
  }
}

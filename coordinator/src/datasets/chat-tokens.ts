// Conversations, prompts with their completions, and texts as tokens, each with a mark whether it is learned. Rendered
// by the model's own chat template. Pure.
import { Tokenizer } from '@huggingface/tokenizers'
import { type ChatMessage, ChatTemplate } from '@starling-grid/model/chat'
import { describeError, GridError } from '@starling-grid/protocol'
import type { ChatWords } from './chat-words.ts'

export interface MarkedTokens {
  readonly tokens: number[]
  /** for each token whether a model learns to write it */
  readonly learned: boolean[]
}

const LEARNED_ROLE = 'assistant'

export class ChatTokens {
  readonly #tokenizer: Tokenizer
  readonly #template: ChatTemplate | undefined
  readonly #words: ChatWords

  /** @throws GridError 'dataset-unreadable' */
  constructor(words: ChatWords) {
    this.#words = words
    try {
      this.#tokenizer = new Tokenizer(JSON.parse(words.tokenizer) as object, {})
    } catch (cause) {
      throw unreadable(`a tokenizer.json of Hugging Face, got: ${describeError(cause)}`)
    }
    const { chatTemplate, special } = words
    this.#template = chatTemplate === undefined ? undefined : new ChatTemplate(chatTemplate, special)
  }

  /** how many tokens there are */
  get size(): number {
    return 1 + [...this.#tokenizer.get_vocab().values()].reduce((greatest, id) => Math.max(greatest, id), 0)
  }

  /** A row of JSON lines: `messages`, `prompt` and `completion`, or `text`. @throws GridError 'dataset-unreadable' */
  row(row: unknown): MarkedTokens {
    const { messages, prompt, completion, text } = fieldsOf(row)
    if (Array.isArray(messages)) return this.conversation(messages.map(messageOf))
    if (typeof prompt === 'string' && typeof completion === 'string')
      return joined([this.#marked(prompt, false), this.#ended(completion)])
    if (typeof text === 'string') return this.#ended(text)
    throw unreadable('`messages`, `prompt` and `completion`, or `text`, got none of them')
  }

  /** What the assistant says is learned, with what ends it; the rest is what it answers to. */
  conversation(messages: readonly ChatMessage[]): MarkedTokens {
    const pieces: MarkedTokens[] = []
    let before = ''
    for (const [i, { role }] of messages.entries()) {
      if (role !== LEARNED_ROLE) continue
      const asked = this.render(messages.slice(0, i), true)
      const answered = this.render(messages.slice(0, i + 1), false)
      if (!asked.startsWith(before) || !answered.startsWith(asked))
        throw unreadable('a chat template that only adds to a conversation, got one that changes earlier turns')
      pieces.push(this.#marked(asked.slice(before.length), false))
      pieces.push(this.#marked(answered.slice(asked.length), true))
      before = answered
    }
    if (pieces.length === 0) throw unreadable('an answer of the assistant in `messages`, got none')
    return joined(pieces)
  }

  /** A conversation as text; with `asks`, up to where the assistant answers. */
  render(messages: readonly ChatMessage[], asks: boolean): string {
    if (this.#template === undefined)
      throw unreadable('a model with a chat template for `messages`, got one without; use `prompt` and `completion`')
    return this.#template.render(messages, asks)
  }

  encode(text: string): number[] {
    return [...this.#tokenizer.encode(text, { add_special_tokens: false }).ids]
  }

  #ended(text: string): MarkedTokens {
    const [end] = this.#words.ends
    const marked = this.#marked(text, true)
    return end === undefined ? marked : joined([marked, { tokens: [end], learned: [true] }])
  }

  #marked(text: string, learned: boolean): MarkedTokens {
    const tokens = this.encode(text)
    return { tokens, learned: tokens.map(() => learned) }
  }
}

function joined(pieces: readonly MarkedTokens[]): MarkedTokens {
  return { tokens: pieces.flatMap(({ tokens }) => tokens), learned: pieces.flatMap(({ learned }) => learned) }
}

function fieldsOf(row: unknown): Readonly<Record<string, unknown>> {
  if (typeof row === 'object' && row !== null && !Array.isArray(row)) return row as Record<string, unknown>
  throw unreadable('a JSON object, got another value')
}

function messageOf(value: unknown): ChatMessage {
  const { role, content } = fieldsOf(value)
  if (typeof role === 'string' && typeof content === 'string') return { role, content }
  throw unreadable('messages of `role` and `content`, both text, got another')
}

function unreadable(what: string): GridError {
  return new GridError('dataset-unreadable', `expected ${what}`)
}

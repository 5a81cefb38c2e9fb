// What an import in the tokens of a model is given.
import type { ChatForm } from '@starling-grid/protocol'

/** What of an imported model makes text to tokens. */
export interface ChatWords {
  /** JSON of tokenizer.json */
  readonly tokenizer: string
  readonly chatTemplate?: string | undefined
  readonly special: Readonly<Record<string, string>>
  /** tokens that end an answer */
  readonly ends: readonly number[]
}

/** Of an import in the tokens of a model. */
export interface ChatImport {
  readonly words: ChatWords
  /** tokens of a sample */
  readonly context: number
  readonly pack: boolean
}

/** How the model is talked to, for those who use what is trained. */
export function chatForm({ words }: Pick<ChatImport, 'words'>): ChatForm {
  const { chatTemplate: template, special, ends } = words
  return { ...(template === undefined ? {} : { template }), special: { ...special }, ends: [...ends] }
}

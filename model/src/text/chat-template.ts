// A conversation as the text that a model was taught: by the chat template that is published with it.
import { Template } from '@huggingface/jinja'
import { type ChatForm, describeError, GridError } from '@starling-grid/protocol'

export interface ChatMessage {
  readonly role: string
  readonly content: string
}

export class ChatTemplate {
  readonly #template: Template
  readonly #special: ChatForm['special']

  /** @throws GridError 'dataset-unreadable' of a text that is no template */
  constructor(template: string, special: ChatForm['special']) {
    this.#special = special
    try {
      this.#template = new Template(template)
    } catch (cause) {
      throw unreadable(`a chat template of Hugging Face, got: ${describeError(cause)}`)
    }
  }

  /** With `asks`, up to where the assistant answers. @throws GridError 'dataset-unreadable' */
  render(messages: readonly ChatMessage[], asks: boolean): string {
    try {
      return this.#template.render({ ...this.#special, messages, add_generation_prompt: asks })
    } catch (cause) {
      throw unreadable(`messages that the model's chat template takes, got: ${describeError(cause)}`)
    }
  }
}

function unreadable(what: string): GridError {
  return new GridError('dataset-unreadable', `expected ${what}`)
}

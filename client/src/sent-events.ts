// Server-sent events (text/event-stream of the WHATWG) out of the bytes of an answer, however these are cut. Bounded.
import { GridError } from '@starling-grid/protocol'

/** Characters of one event at most: an event of a run has a few hundred. */
const MOST_CHARACTERS = 1024 * 1024

export interface SentEvent {
  /** what Last-Event-ID resumes behind; undefined: a stream is not resumed behind this one */
  readonly id: string | undefined
  readonly type: string
  readonly data: string
}

/** `pieces`: of the body. @throws GridError 'message-too-large' */
export async function* sentEvents(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<SentEvent> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const piece of pieces) {
    text += decoder.decode(piece, { stream: true })
    const blocks = text.split('\n\n')
    text = blocks.pop() ?? ''
    for (const block of blocks) {
      const event = eventIn(block)
      if (event !== undefined) yield event
    }
    if (text.length > MOST_CHARACTERS)
      throw new GridError(
        'message-too-large',
        `expected events of at most ${MOST_CHARACTERS} characters, got a longer one; check the address`,
      )
  }
}

/** Undefined for a comment, and for a block that only says when to come back. */
function eventIn(block: string): SentEvent | undefined {
  const fields = new Map(
    block.split('\n').map((line) => {
      const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/.exec(line) ?? []
      return [name, value]
    }),
  )
  const data = fields.get('data')
  return data === undefined ? undefined : { id: fields.get('id'), type: fields.get('event') ?? 'message', data }
}

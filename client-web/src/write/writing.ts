// A visitor who tries the model of a job: the Worker that writes, what it said, and what was written so far.
// Independent of the page's appearance.
import { type ReadonlySignal, signal } from '@preact/signals'
import type { WritingOptions } from '@starling-grid/model/text'
import type { AdapterDescription, JobId } from '@starling-grid/protocol'
import { askedExecutor } from '../asked-executor.ts'
import { rememberedLimits } from '../contribute/visitor-limits.ts'
import { startOwnWorker } from '../own-worker.ts'
import type { Failure } from '../worker-messages.ts'
import type { FromWriter, ToWriter, WhyEnded } from './write-messages.ts'
import workerUrl from './write-worker.ts?worker&url'

/** What is at hand, and what is under way. */
export interface WriterState {
  /** undefined: nothing is loaded */
  readonly loading: Extract<FromWriter, { type: 'loading' }> | undefined
  /** that writes; undefined: none is open yet */
  readonly open: { readonly version: number; readonly adapter: AdapterDescription } | undefined
  readonly isWriting: boolean
  readonly failure: Failure | undefined
}

/** What a visitor asked, and what a version made of it. */
export interface Turn {
  readonly asked: string
  readonly written: string
  readonly version: number
  readonly tokens: number
  /** tokens, since the first; 0: not known */
  readonly perSecond: number
  /** undefined: it is being written */
  readonly why: WhyEnded | 'failed' | undefined
}

const NOTHING: WriterState = { loading: undefined, open: undefined, isWriting: false, failure: undefined }

export interface WriterOptions {
  readonly job: JobId
  /** of the owner */
  readonly token: string | undefined
  /** its model answers in a conversation */
  readonly chats: boolean
}

export class ModelWriter {
  readonly #options: WriterOptions
  readonly #state = signal<WriterState>(NOTHING)
  readonly #turns = signal<readonly Turn[]>([])
  #worker: Worker | undefined

  constructor(options: WriterOptions) {
    this.#options = options
  }

  get state(): ReadonlySignal<WriterState> {
    return this.#state
  }

  /** the oldest first */
  get turns(): ReadonlySignal<readonly Turn[]> {
    return this.#turns
  }

  /** Brings a version to this device; undefined: the newest. What is here of it already is not fetched again. */
  open(version?: number): void {
    const { job, token } = this.#options
    this.#change({ loading: { type: 'loading', what: 'model', done: 0, total: 0 }, failure: undefined })
    this.#tell({
      type: 'open',
      job,
      token,
      version,
      limits: rememberedLimits(),
      executor: askedExecutor(location.search),
    })
  }

  write(text: string, options: WritingOptions): void {
    const { open, isWriting } = this.#state.value
    if (open === undefined || isWriting) return
    const { chats } = this.#options
    const before = this.#turns.value
    const fresh: Turn = { asked: text, written: '', version: open.version, tokens: 0, perSecond: 0, why: undefined }
    this.#turns.value = chats ? [...before, fresh] : [fresh]
    this.#change({ isWriting: true, failure: undefined })
    const asked = chats ? { messages: [...before.flatMap(messagesOf), ...messagesOf(fresh)] } : { prompt: text }
    this.#tell({ type: 'write', asked, options })
  }

  stop(): void {
    this.#tell({ type: 'stop' })
  }

  /** Forgets the conversation. */
  clear(): void {
    if (!this.#state.value.isWriting) this.#turns.value = []
  }

  /** The page shows another job, or goes. */
  end(): void {
    this.#worker?.terminate()
    this.#worker = undefined
    this.#state.value = NOTHING
  }

  #tell(message: ToWriter): void {
    this.#worker ??= this.#start()
    this.#worker.postMessage(message)
  }

  #start(): Worker {
    const worker = startOwnWorker(workerUrl)
    worker.onmessage = ({ data }: MessageEvent<FromWriter>) => this.#heard(data)
    worker.onerror = ({ message }) => {
      this.end()
      this.#failed({ code: 'internal', message: message || 'its Worker could not be loaded; reload the page' }, false)
    }
    return worker
  }

  #heard(message: FromWriter): void {
    switch (message.type) {
      case 'loading':
        return this.#change({ loading: message })
      case 'opened':
        return this.#change({ loading: undefined, open: { version: message.version, adapter: message.adapter } })
      case 'piece':
        return this.#grow(({ written }) => ({
          written: written + message.text,
          tokens: message.tokens,
          perSecond: message.perSecond,
        }))
      case 'written':
        this.#grow(() => ({ why: message.why }))
        return this.#change({ isWriting: false })
      case 'failed':
        return this.#failed(message.failure, message.isOpen)
      default:
        message satisfies never
    }
  }

  #failed(failure: Failure, isOpen: boolean): void {
    if (this.#state.value.isWriting) this.#grow(() => ({ why: 'failed' }))
    this.#change({ loading: undefined, isWriting: false, failure, ...(isOpen ? {} : { open: undefined }) })
  }

  #change(change: Partial<WriterState>): void {
    this.#state.value = { ...this.#state.value, ...change }
  }

  #grow(change: (turn: Turn) => Partial<Turn>): void {
    const turns = this.#turns.value
    const last = turns.at(-1)
    if (last !== undefined) this.#turns.value = [...turns.slice(0, -1), { ...last, ...change(last) }]
  }
}

/** An answer that has not begun is not part of what was said. */
function messagesOf({ asked, written }: Turn) {
  const question = { role: 'user', content: asked }
  return written === '' ? [question] : [question, { role: 'assistant', content: written }]
}

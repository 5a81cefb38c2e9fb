// The reading half of an import in a thread of its own: one window is read while the one before is mixed, hashed and
// written. Two windows are under way at most.
import { on } from 'node:events'
import { Worker } from 'node:worker_threads'
import { type ErrorCode, GridError } from '@starling-grid/protocol'
import type { ReadForm, Reading, ReadingTask, ReadingWatch, ReadWindow } from './reading.ts'
import { SampleWindow, type WindowMemory } from './sample-window.ts'

/** MB of what lives for one file or run. V8 would take 48, and let as much of unpacked images lie beside it. */
const YOUNG_MB = 6

export type ReadingMessage =
  | { readonly type: 'form'; readonly form: ReadForm }
  | { readonly type: 'progress'; readonly done: number; readonly total: number; readonly samples: number }
  | {
      readonly type: 'window'
      readonly memory: WindowMemory
      readonly count: number
      readonly filled: Omit<ReadWindow, 'window'>
    }
  | { readonly type: 'end' }
  /** `code`: of a GridError, which does not come through as one */
  | { readonly type: 'failed'; readonly code?: ErrorCode; readonly message: string; readonly error: unknown }

/** @throws GridError as openReading() */
export async function openReadingThread(task: ReadingTask, watch: ReadingWatch): Promise<Reading> {
  const worker = new Worker(new URL('./reading-bootstrap.mjs', import.meta.url), {
    workerData: task,
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB },
  })
  const messages = messagesOf(worker, watch)
  const stop = async (): Promise<void> => void (await worker.terminate())
  try {
    const { value: first } = await messages.next()
    if (first?.type !== 'form') throw endedEarly()
    return { form: first.form, windows: () => windowsOf(worker, messages, { ...first.form, ...task }), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function* windowsOf(
  worker: Worker,
  messages: AsyncIterable<ReadingMessage>,
  { inputs, windowBytes }: ReadForm & ReadingTask,
): AsyncIterable<ReadWindow> {
  for await (const message of messages) {
    if (message.type === 'end') return
    if (message.type !== 'window') continue
    const { memory, count, filled } = message
    yield { ...filled, window: new SampleWindow({ inputs, targets: filled.targets, windowBytes }, memory, count) }
    worker.postMessage(memory, buffersOf(memory))
  }
  throw endedEarly()
}

/** Given to the thread that gets the message. */
export function buffersOf({ x, y }: WindowMemory): ArrayBuffer[] {
  return [x.buffer, y.buffer] as ArrayBuffer[]
}

/** What the thread says, in its order. @throws what ended it */
async function* messagesOf(worker: Worker, { onProgress }: ReadingWatch): AsyncGenerator<ReadingMessage> {
  for await (const [said] of on(worker, 'message', { close: ['exit'] })) {
    const message = said as ReadingMessage
    if (message.type === 'failed') throw failureOf(message)
    if (message.type === 'progress') onProgress?.(message.done, message.total, message.samples)
    else yield message
  }
}

function failureOf({ code, message, error }: Extract<ReadingMessage, { type: 'failed' }>): unknown {
  return code === undefined ? error : new GridError(code, message, { cause: error })
}

function endedEarly(): Error {
  return new Error('expected the samples of the files, got the end of the thread that reads them')
}

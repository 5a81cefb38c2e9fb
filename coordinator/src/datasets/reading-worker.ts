// Reads for an import in another thread: windows out, their memory back. Started by reading-bootstrap.mjs.
import { on } from 'node:events'
import { parentPort, workerData } from 'node:worker_threads'
import { isGridError } from '@starling-grid/protocol'
import { buffersOf, type ReadingMessage } from './reading-thread.ts'
import { openReading, type ReadingTask } from './reading.ts'
import type { WindowMemory } from './sample-window.ts'

/** One is filled while the other is written. */
const WINDOWS = 2

if (parentPort === null) throw new Error('internal: a reading worker runs in a thread of an import')
const port = parentPort
const say = (message: ReadingMessage, memory: ArrayBuffer[] = []): void => port.postMessage(message, memory)
const returned = on(port, 'message')
let made = 0

/** Undefined: new memory. */
async function memory(): Promise<WindowMemory | undefined> {
  if (made++ < WINDOWS) return undefined
  const { value } = (await returned.next()) as { readonly value: readonly [WindowMemory] }
  return value[0]
}

async function read(): Promise<void> {
  const onProgress = (done: number, total: number, samples: number): void =>
    say({ type: 'progress', done, total, samples })
  const reading = await openReading(workerData as ReadingTask, { onProgress, memory })
  say({ type: 'form', form: reading.form })
  for await (const { window, ...filled } of reading.windows()) {
    const { memory: own, count } = window
    say({ type: 'window', memory: own, count, filled }, buffersOf(own))
  }
  say({ type: 'end' })
}

await read().catch((error: unknown) => {
  if (!isGridError(error)) return say({ type: 'failed', message: String(error), error })
  const { code, message, cause } = error
  say({ type: 'failed', code, message, error: cause instanceof Error ? cause : undefined })
})
port.close()

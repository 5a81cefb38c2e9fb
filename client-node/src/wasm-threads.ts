// Threads for the executor on WebAssembly; their counterpart in the browser has the same name.
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import type { WasmThreads } from '@starling-grid/volunteer/wasm'

/** More gain little: passes are short, and all threads wait for each other after each. */
const MOST_THREADS = 16

/** `count` absent: one for each core. */
export function wasmThreads(count: number | undefined): WasmThreads {
  return {
    count: count ?? Math.min(availableParallelism(), MOST_THREADS),
    spawn(onAnswer) {
      const worker = new Worker(new URL('./wasm-bootstrap.mjs', import.meta.url))
      const failed = (why: string): void => onAnswer({ type: 'failed', why })
      worker.on('message', onAnswer)
      worker.on('error', (error) => failed(error instanceof Error ? error.message : String(error)))
      worker.on('exit', (code) => failed(`it ended with code ${code}`))
      return {
        start: (message) => worker.postMessage(message),
        stop: () => void worker.terminate(),
      }
    },
  }
}

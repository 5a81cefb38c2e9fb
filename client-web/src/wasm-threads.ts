// Threads for the executor on WebAssembly; their counterpart in Node has the same name.
import type { WasmThreads } from '@starling-grid/volunteer/wasm'
import { startOwnWorker } from './own-worker.ts'
import workerUrl from './wasm-worker.ts?worker&url'

/** More gain little: passes are short, and all threads wait for each other after each. */
const MOST_THREADS = 8

/**
 * One core stays free for the page and its neighbours, where there are more than two. Undefined: this page may share no
 * memory between threads, so that its Worker computes alone.
 */
export function wasmThreads(): WasmThreads | undefined {
  if (!crossOriginIsolated) return undefined
  const cores = navigator.hardwareConcurrency
  return {
    count: Math.max(1, Math.min(cores > 2 ? cores - 1 : cores, MOST_THREADS)),
    spawn(onAnswer) {
      const worker = startOwnWorker(workerUrl)
      worker.onmessage = (event: MessageEvent<Parameters<typeof onAnswer>[0]>) => onAnswer(event.data)
      worker.onerror = (event) => onAnswer({ type: 'failed', why: event.message || 'its Worker could not be loaded' })
      return { start: (message) => worker.postMessage(message), stop: () => worker.terminate() }
    },
  }
}

// A thread of the executor on WebAssembly.
import { serveThread, type ThreadAnswer, type ThreadStart } from '@starling-grid/volunteer/wasm-thread'

addEventListener('message', (event: MessageEvent<ThreadStart>) => {
  serveThread(event.data, (answer: ThreadAnswer) => postMessage(answer))
  close()
})

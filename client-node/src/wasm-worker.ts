// A thread of the executor on WebAssembly. Started by wasm-bootstrap.mjs.
import { parentPort } from 'node:worker_threads'
import { serveThread, type ThreadAnswer, type ThreadStart } from '@starling-grid/volunteer/wasm-thread'

if (parentPort === null) throw new Error('internal: a computing thread runs in a thread of a volunteer')
const port = parentPort
port.once('message', (start: ThreadStart) => {
  serveThread(start, (answer: ThreadAnswer) => port.postMessage(answer))
  port.close()
})

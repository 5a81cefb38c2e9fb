// One encoding in its own thread: the task in, its bytes out. Started by encoding-bootstrap.mjs.
import { parentPort } from 'node:worker_threads'
import { encodeNow, type EncodingTask } from './encoding.ts'

if (parentPort === null) throw new Error('internal: an encoding worker runs in a thread of the coordinator')
const port = parentPort
port.once('message', (task: EncodingTask) => {
  const answer = encodeNow(task)
  port.postMessage(answer, 'bytes' in answer ? [answer.bytes.buffer] : [])
})

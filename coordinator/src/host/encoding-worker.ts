// One task of encoding.ts in its own thread: the task in, its answer out. Started by encoding-bootstrap.mjs.
import { parentPort } from 'node:worker_threads'
import { computeNow, memoryOf } from './encoding.ts'

if (parentPort === null) throw new Error('internal: an encoding worker runs in a thread of the coordinator')
const port = parentPort
port.once('message', (task: Parameters<typeof computeNow>[0]) => {
  const answer = computeNow(task)
  port.postMessage(answer, memoryOf(answer))
})

// A shard in its own thread: commands in, answers out, in their order. Started by shard-bootstrap.mjs.
import { parentPort, workerData } from 'node:worker_threads'
import { Shard, type ShardCommand, type ShardParts } from './shard.ts'

if (parentPort === null) throw new Error('internal: a shard worker runs in a thread of the parameter server')
const port = parentPort
const shard = new Shard(workerData as ShardParts)
port.on('message', (command: ShardCommand) => port.postMessage(shard.run(command)))
port.postMessage('ready')

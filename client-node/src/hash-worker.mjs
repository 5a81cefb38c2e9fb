// A thread that hashes what its caller copied into memory that they share (hash-thread.ts).
import { createHash } from 'node:crypto'
import { parentPort } from 'node:worker_threads'

/** An update of a hash takes less than 2 GiB. */
const PIECE_BYTES = 2 ** 26

parentPort.on('message', ({ memory, bytes }) => {
  const hash = createHash('sha256')
  for (let at = 0; at < bytes; at += PIECE_BYTES)
    hash.update(new Uint8Array(memory, at, Math.min(PIECE_BYTES, bytes - at)))
  parentPort.postMessage(hash.digest('hex'))
})

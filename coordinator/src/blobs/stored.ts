// Bytes that are kept somewhere and leave as a stream: a slow reader costs a buffer, not a copy.
import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'

/** Bytes of one chunk of a stream from memory; files have chunks of this size by themselves. */
const CHUNK_BYTES = 64 * 1024

export interface Stored {
  readonly bytes: number
  /** From the first byte to the last one, included. */
  open(first: number, last: number): Readable
}

export function storedInFile(path: string, bytes: number): Stored {
  return { bytes, open: (start, end) => createReadStream(path, { start, end }) }
}

export function storedInMemory(all: Uint8Array): Stored {
  function* chunks(bytes: Uint8Array): Generator<Uint8Array> {
    for (let at = 0; at < bytes.byteLength; at += CHUNK_BYTES) yield bytes.subarray(at, at + CHUNK_BYTES)
  }
  return {
    bytes: all.byteLength,
    open: (first, last) =>
      Readable.from(chunks(all.subarray(first, last + 1)), { objectMode: false, highWaterMark: CHUNK_BYTES }),
  }
}

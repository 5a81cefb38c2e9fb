// Bytes that are kept somewhere and leave as a stream: a slow reader costs a buffer, not a copy.
import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'
import { type Clock, FETCH_CHUNK_BYTES } from '@starling-grid/protocol'
import { inTurns, PIECE_BYTES } from '../turns.ts'

/**
 * Bytes of one chunk of a stream. Those of a file are a turn of another thread each: with chunks of 64 KiB a GB costs a
 * third more CPU time. A slow reader costs two of them, and shows that it reads by taking one (api/connections.ts).
 */
const CHUNK_BYTES = 128 * 1024

/** The same bytes in runs of FETCH_CHUNK_BYTES, as saltedDigest takes them. */
export async function* inChunks(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let rest: Uint8Array[] = []
  let length = 0
  for await (const part of bytes) {
    rest.push(part)
    length += part.byteLength
    while (length >= FETCH_CHUNK_BYTES) {
      const all = Buffer.concat(rest)
      yield all.subarray(0, FETCH_CHUNK_BYTES)
      rest = [all.subarray(FETCH_CHUNK_BYTES)]
      length -= FETCH_CHUNK_BYTES
    }
  }
  if (length > 0) yield Buffer.concat(rest)
}

export interface Stored {
  readonly bytes: number
  /** From the first byte to the last one, included. */
  open(first: number, last: number): Readable
}

export function storedInFile(path: string, bytes: number): Stored {
  return { bytes, open: (start, end) => createReadStream(path, { start, end, highWaterMark: CHUNK_BYTES }) }
}

export function storedInMemory(all: Uint8Array): Stored {
  return { bytes: all.byteLength, open: (first, last) => streamOf(all.subarray(first, last + 1)) }
}

/** Views, not copies. */
function streamOf(bytes: Uint8Array): Readable {
  let at = 0
  return new Readable({
    highWaterMark: CHUNK_BYTES,
    read() {
      this.push(at < bytes.byteLength ? bytes.subarray(at, at + CHUNK_BYTES) : null)
      at += CHUNK_BYTES
    },
  })
}

/** All parts in new memory. Other work gets its turns between two pieces, and may change what is still to be copied. */
export function copied(parts: readonly Uint8Array[], clock: Clock): Promise<Uint8Array<ArrayBuffer>> {
  return inTurns(copying(parts), clock)
}

function* copying(parts: readonly Uint8Array[]): Generator<undefined, Uint8Array<ArrayBuffer>> {
  const all = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0))
  let at = 0
  for (const part of parts)
    for (let from = 0; from < part.byteLength; from += PIECE_BYTES) {
      const piece = part.subarray(from, from + PIECE_BYTES)
      all.set(piece, at)
      at += piece.byteLength
      if (piece.byteLength === PIECE_BYTES) yield
    }
  return all
}

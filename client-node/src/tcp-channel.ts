// One TLS socket as a channel of frames. A frame tells its own length, so the stream is frames and nothing else. A
// write is under way or none is: meanwhile frames gather in memory of ours and leave as one write, so that a fast link
// makes few of them.
import type { TLSSocket } from 'node:tls'
import { LOW_WATER_BYTES } from '@starling-grid/protocol'
import type { Channel, ChannelLink } from '@starling-grid/volunteer'
import { MAX_GREETING_BYTES, MAX_LINK_FRAME_BYTES } from '@starling-grid/volunteer/links'
import { FrameReader } from './frame-reader.ts'

/** ms that a closed link may take to hand over what it accepted */
const LINGER_MS = 500
/** Bytes of gathered frames at first; memory grows up to the high-water mark and one frame. */
const GATHERED_BYTES = 256 * 1024

export class TcpChannel implements Channel {
  readonly #socket: TLSSocket
  readonly #reader: FrameReader
  #link: Pick<ChannelLink, 'drained'> | undefined
  #gathered = new Uint8Array(0)
  #gatheredBytes = 0
  /** memory of the write under way, which gathers next */
  #spare = new Uint8Array(0)
  #leaving = 0
  #closed = false

  /** `onFrame` may throw, which ends the stream like any other error. */
  constructor(socket: TLSSocket, onFrame: (frame: Uint8Array) => void, onEnd: (reason: string) => void) {
    this.#socket = socket
    this.#reader = new FrameReader(MAX_GREETING_BYTES, (frame) => {
      this.#reader.most = MAX_LINK_FRAME_BYTES
      onFrame(frame)
    })
    socket.on('data', (piece: Buffer) => {
      if (this.#closed) return
      try {
        this.#reader.push(bytesOf(piece))
      } catch (error) {
        onEnd(error instanceof Error ? error.message : String(error))
      }
    })
    socket.on('end', () => onEnd('closed by the other side'))
    socket.on('error', (error) => onEnd(`the socket failed: ${error.message}`))
    socket.on('close', () => onEnd('closed by the other side'))
    socket.setNoDelay(true)
  }

  /** Told when there is room again. */
  set link(link: Pick<ChannelLink, 'drained'>) {
    this.#link = link
  }

  get bufferedBytes(): number {
    return this.#leaving + this.#gatheredBytes
  }

  /** The socket has encrypted what it is given before it returns, as long as no other write is under way. */
  write(frame: Uint8Array<ArrayBuffer>): void {
    if (this.#leaving === 0) this.#send(frame)
    else this.#gather(frame)
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    if (this.#gatheredBytes > 0) this.#socket.write(this.#gathered.subarray(0, this.#gatheredBytes))
    this.#gatheredBytes = 0
    this.#socket.end()
    const timer = setTimeout(() => this.#socket.destroy(), LINGER_MS)
    this.#socket.once('close', () => clearTimeout(timer))
    // What still comes is read to its end, and dropped: or the farewell of the other side would wait behind it.
    this.#socket.resume()
  }

  #send(bytes: Uint8Array): void {
    this.#leaving = bytes.byteLength
    this.#socket.write(bytes, () => this.#left())
  }

  #gather(frame: Uint8Array): void {
    const needed = this.#gatheredBytes + frame.byteLength
    if (this.#gathered.byteLength < needed) this.#grow(needed)
    this.#gathered.set(frame, this.#gatheredBytes)
    this.#gatheredBytes = needed
  }

  #grow(needed: number): void {
    const larger = new Uint8Array(Math.max(GATHERED_BYTES, 2 * this.#gathered.byteLength, needed))
    larger.set(this.#gathered.subarray(0, this.#gatheredBytes))
    this.#gathered = larger
  }

  #left(): void {
    this.#leaving = 0
    if (this.#closed) return
    if (this.#gatheredBytes > 0) {
      const [bytes, memory] = [this.#gathered.subarray(0, this.#gatheredBytes), this.#gathered]
      this.#gathered = this.#spare
      this.#spare = memory
      this.#gatheredBytes = 0
      this.#send(bytes)
    }
    if (this.bufferedBytes <= LOW_WATER_BYTES) this.#link?.drained()
  }
}

/** Without a Buffer's methods, of which `slice` does not copy. */
function bytesOf({ buffer, byteOffset, byteLength }: Buffer): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}

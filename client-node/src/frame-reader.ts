// Frames out of a stream of bytes. A frame's length is checked before memory is taken for it; it is copied once, out of
// the pieces that the socket hands over, and not at all where one piece holds it whole.
import { FRAME_HEADER_BYTES, frameBytes } from '@starling-grid/protocol'
import { takeMemory } from '@starling-grid/volunteer/links'

export class FrameReader {
  readonly #onFrame: (frame: Uint8Array) => void
  /** greatest frame that is taken now */
  most: number
  readonly #header = new Uint8Array(FRAME_HEADER_BYTES)
  /** the frame whose bytes come; undefined: its header is not whole */
  #frame: Uint8Array | undefined
  /** bytes of header or frame that are here */
  #filled = 0

  constructor(most: number, onFrame: (frame: Uint8Array) => void) {
    this.most = most
    this.#onFrame = onFrame
  }

  /**
   * @throws GridError 'message-malformed' or 'message-too-large': the stream is of no use any more. `onFrame` got the
   * header that is none, so that its owner knows what the other side sent
   */
  push(piece: Uint8Array): void {
    let at = 0
    while (at < piece.byteLength)
      at = this.#frame === undefined ? this.#begin(piece, at) : this.#go(this.#frame, piece, at)
  }

  #bytesOf(header: Uint8Array): number {
    try {
      return frameBytes(header, this.most)
    } catch (error) {
      this.#onFrame(header)
      throw error
    }
  }

  /** Returns how far it came. */
  #begin(piece: Uint8Array, at: number): number {
    if (this.#filled === 0 && piece.byteLength - at >= FRAME_HEADER_BYTES) {
      const bytes = this.#bytesOf(piece.subarray(at, at + FRAME_HEADER_BYTES))
      if (piece.byteLength - at >= bytes) {
        this.#onFrame(piece.subarray(at, at + bytes))
        return at + bytes
      }
      this.#frame = takeMemory(bytes)
      return at
    }
    const end = Math.min(piece.byteLength, at + FRAME_HEADER_BYTES - this.#filled)
    this.#header.set(piece.subarray(at, end), this.#filled)
    this.#filled += end - at
    if (this.#filled < FRAME_HEADER_BYTES) return end
    const frame = takeMemory(this.#bytesOf(this.#header))
    frame.set(this.#header)
    if (frame.byteLength === FRAME_HEADER_BYTES) this.#whole(frame)
    else this.#frame = frame
    return end
  }

  #go(frame: Uint8Array, piece: Uint8Array, at: number): number {
    const end = Math.min(piece.byteLength, at + frame.byteLength - this.#filled)
    frame.set(piece.subarray(at, end), this.#filled)
    this.#filled += end - at
    if (this.#filled === frame.byteLength) this.#whole(frame)
    return end
  }

  #whole(frame: Uint8Array): void {
    this.#frame = undefined
    this.#filled = 0
    this.#onFrame(frame)
  }
}

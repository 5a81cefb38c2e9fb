// A PeerLink over any ordered channel of bytes: back-pressure, frames that came early, closing exactly once.
// Independent of what carries the bytes; a carrier is a Channel of a few lines.
import { describeError, GridError, HIGH_WATER_BYTES, type MemberId } from '@starling-grid/protocol'
import { NUMBER_BYTES } from './frame-order.ts'
import type { LinkCarrier, PeerLink } from './peer-link.ts'

/** Bytes of one frame with its header: the largest message that WebRTC takes in tabs and in Node, less its number. */
export const MAX_LINK_FRAME_BYTES = 256 * 1024 - NUMBER_BYTES
/** Bytes kept for an owner that has not set onFrame yet: one high-water mark at the sender plus one on the way. */
export const MAX_EARLY_BYTES = 2 * HIGH_WATER_BYTES

/** What a link needs from what carries its bytes. The carrier calls `received`, `drained` and `close` of the link. */
export interface Channel {
  /** bytes written and not yet handed to the network */
  readonly bufferedBytes: number
  /** false: the next frame waits for `drained`, however few bytes are buffered; absent: it never does */
  readonly hasRoom?: boolean
  /** Copies the bytes, or has handed them over, before it returns: their memory is used again. */
  write(frame: Uint8Array<ArrayBuffer>): void
  /** May be called more than once. */
  close(reason: string): void
}

interface WaitingSend {
  readonly frame: Uint8Array<ArrayBuffer>
  readonly resolve: () => void
  readonly reject: (error: GridError) => void
}

export class ChannelLink implements PeerLink {
  readonly peer: MemberId
  readonly carrier: LinkCarrier
  readonly #channel: Channel
  readonly #mostBytes: number
  #waiting: WaitingSend[] = []
  #congested = false
  #early: Uint8Array[] = []
  #earlyBytes = 0
  #closedBecause: string | undefined
  #onFrame: PeerLink['onFrame']
  #onClose: PeerLink['onClose']
  #noteClosed: (reason: string) => void = () => {}
  /** for the network that made the link; the owner has onClose */
  readonly closed = new Promise<string>((resolve) => {
    this.#noteClosed = resolve
  })

  /** `mostBytes`: of one frame */
  constructor(peer: MemberId, channel: Channel, carrier: LinkCarrier, mostBytes = MAX_LINK_FRAME_BYTES) {
    this.peer = peer
    this.#mostBytes = mostBytes
    this.carrier = carrier
    this.#channel = channel
  }

  get bufferedBytes(): number {
    return this.#closedBecause === undefined ? this.#channel.bufferedBytes : 0
  }

  get onFrame(): PeerLink['onFrame'] {
    return this.#onFrame
  }

  set onFrame(handler: PeerLink['onFrame']) {
    this.#onFrame = handler
    if (handler === undefined) return
    const frames = this.#early
    this.#early = []
    this.#earlyBytes = 0
    for (const frame of frames) this.#deliver(frame)
  }

  get onClose(): PeerLink['onClose'] {
    return this.#onClose
  }

  set onClose(handler: PeerLink['onClose']) {
    this.#onClose = handler
    if (this.#closedBecause !== undefined) this.#announceClose()
  }

  send(frame: Uint8Array<ArrayBuffer>): Promise<void> {
    if (this.#closedBecause !== undefined) return Promise.reject(this.#lost())
    if (frame.byteLength > this.#mostBytes) return Promise.reject(this.#tooLarge(frame.byteLength))
    return new Promise((resolve, reject) => {
      this.#waiting.push({ frame, resolve, reject })
      this.#pump()
    })
  }

  close(reason: string): void {
    if (this.#closedBecause !== undefined) return
    this.#closedBecause = reason
    this.#channel.close(reason)
    for (const waiting of this.#waiting.splice(0)) waiting.reject(this.#lost())
    this.#noteClosed(reason)
    this.#announceClose()
  }

  /** From the channel: a frame came. */
  received(frame: Uint8Array): void {
    if (this.#closedBecause !== undefined) return
    if (frame.byteLength > this.#mostBytes) return this.close(this.#tooLarge(frame.byteLength).message)
    if (this.#onFrame !== undefined) return this.#deliver(frame)
    this.#early.push(frame)
    this.#earlyBytes += frame.byteLength
    if (this.#earlyBytes > MAX_EARLY_BYTES) this.close(`${this.#earlyBytes} bytes came before anybody read them`)
  }

  /** From the channel: its buffer shrank to LOW_WATER_BYTES or below. */
  drained(): void {
    this.#congested = false
    this.#pump()
  }

  #pump(): void {
    while (!this.#congested) {
      const takes = this.#channel.bufferedBytes < HIGH_WATER_BYTES && this.#channel.hasRoom !== false
      const next = takes ? this.#waiting.shift() : undefined
      if (next === undefined) break
      this.#write(next)
    }
    this.#congested = this.#waiting.length > 0
  }

  #write(waiting: WaitingSend): void {
    try {
      this.#channel.write(waiting.frame)
      waiting.resolve()
    } catch (error) {
      waiting.reject(new GridError('link-lost', describeError(error), { cause: error }))
      this.close(describeError(error))
    }
  }

  /** An owner that throws ends this link, not the process: on some platforms we are inside a native callback here. */
  #deliver(frame: Uint8Array): void {
    try {
      this.#onFrame?.(frame)
    } catch (error) {
      this.close(describeError(error))
    }
  }

  #announceClose(): void {
    queueMicrotask(() => {
      const handler = this.#onClose
      this.#onClose = undefined
      if (this.#closedBecause !== undefined) handler?.(this.#closedBecause)
    })
  }

  #lost(): GridError {
    return new GridError('link-lost', `the link to ${this.peer} is closed: ${this.#closedBecause ?? 'unknown'}`)
  }

  #tooLarge(bytes: number): GridError {
    return new GridError('message-too-large', `expected a frame of at most ${this.#mostBytes} bytes, got ${bytes}`)
  }
}

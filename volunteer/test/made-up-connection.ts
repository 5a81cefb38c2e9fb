// A WebRTC connection whose other side is the test.
import assert from 'node:assert/strict'
import { type FrameType, memberId, type MemberId, packFrame, unpackFrame } from '@starling-grid/protocol'
import { RECEIPT_BYTES } from '../src/link/flight-window.ts'
import { NUMBER_BYTES } from '../src/link/frame-order.ts'
import type { PeerJsClient } from '../src/link/peerjs-network.ts'
import type { RtcConnection } from '../src/link/rtc-subflow.ts'

/** Of a greeting, or of a frame with its number. */
function frameIn(message: Uint8Array): FrameType {
  const isNumbered = String.fromCharCode(...message.subarray(NUMBER_BYTES, 2 * NUMBER_BYTES)) === 'STRL'
  return unpackFrame(isNumbered ? message.slice(NUMBER_BYTES) : message).type
}

/** What one sends the other gets, by way of `carry`. */
export function wire(
  first: MadeUpChannel,
  second: MadeUpChannel,
  carry = (deliver: () => void): void => deliver(),
): void {
  for (const [from, to] of [
    [first, second],
    [second, first],
  ] as const) {
    from.carry = (bytes) => {
      const message = bytes.slice().buffer
      carry(() => to.deliver(message))
    }
    from.onClosed = () => carry(() => to.close())
  }
}

/** A data channel whose other side is the test. */
export class MadeUpChannel extends EventTarget {
  readyState: RTCDataChannelState = 'connecting'
  binaryType = 'blob'
  bufferedAmount = 0
  label = 'dc_made-up'
  readonly sent: FrameType[] = []
  receipts = 0
  carry: ((bytes: Uint8Array) => void) | undefined
  onClosed: () => void = () => undefined

  send(bytes: Uint8Array): void {
    if (bytes.byteLength === RECEIPT_BYTES) this.receipts++
    else this.sent.push(frameIn(bytes))
    this.carry?.(bytes)
  }
  close(): void {
    if (this.readyState === 'closed') return
    this.readyState = 'closed'
    this.dispatchEvent(new Event('close'))
    this.onClosed()
  }
  open(): void {
    this.readyState = 'open'
    this.dispatchEvent(new Event('open'))
  }
  deliver(data: unknown): void {
    this.dispatchEvent(new MessageEvent('message', { data }))
  }
  deliverFrame(type: FrameType, payload = new Uint8Array(0)): void {
    this.deliver(packFrame({ type, generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload }).buffer)
  }
  get asChannel(): RTCDataChannel {
    return this as unknown as RTCDataChannel
  }
}

class MadeUpPeerConnection extends EventTarget {
  connectionState = 'new'
  localDescription: { sdp: string } | null = null
  remoteDescription: { sdp: string } | null = null

  fail(): void {
    this.connectionState = 'failed'
    this.dispatchEvent(new Event('connectionstatechange'))
  }
  announce(channel: RTCDataChannel): void {
    this.dispatchEvent(Object.assign(new Event('datachannel'), { channel }))
  }
}

export class MadeUpConnection implements RtcConnection {
  readonly peer: MemberId
  readonly channel = new MadeUpChannel()
  readonly native = new MadeUpPeerConnection()
  readonly peerConnection = this.native as unknown as NonNullable<RtcConnection['peerConnection']>
  readonly dataChannel: RTCDataChannel | null
  closed = false
  /** of its channel, as it was offered */
  label = this.channel.label

  constructor(peer: MemberId, dialled: boolean) {
    this.peer = peer
    this.dataChannel = dialled ? this.channel.asChannel : null
  }
  on(): void {}
  close(): void {
    this.closed = true
  }
  announce(channel = this.channel): void {
    this.native.announce(channel.asChannel)
  }
}

/** Signalling as PeerJS has it: an emitter that PeerJS listens to. */
class MadeUpSocket {
  #listeners: ((message: unknown) => void)[]

  constructor(ofPeerJs: (message: unknown) => void) {
    this.#listeners = [ofPeerJs]
  }
  listeners(): ((message: unknown) => void)[] {
    return [...this.#listeners]
  }
  removeAllListeners(): void {
    this.#listeners = []
  }
  on(_: 'message', listener: (message: unknown) => void): void {
    this.#listeners.push(listener)
  }
  send(): void {}
  says(message: unknown): void {
    for (const listener of this.#listeners) listener(message)
  }
}

/** A PeerJS client whose signalling is the test. */
export class MadeUpClient implements PeerJsClient {
  open = false
  disconnected = false
  destroyed = false
  readonly connections: MadeUpConnection[] = []
  readonly #listeners = new Map<string, (value: never) => void>()
  /** what PeerJS was shown of signalling */
  readonly shown: unknown[] = []
  readonly socket = new MadeUpSocket((message) => this.shown.push(message))

  getConnection(): unknown {
    return this.connections[0]
  }
  on(event: string, listener: (value: never) => void): void {
    this.#listeners.set(event, listener)
  }
  emit(event: string, value?: unknown): void {
    this.#listeners.get(event)?.(value as never)
  }
  connect(peer: string): MadeUpConnection | undefined {
    if (this.disconnected) return undefined
    const connection = new MadeUpConnection(memberId(peer), true)
    this.connections.push(connection)
    return connection
  }
  disconnect(): void {
    if (this.disconnected) return
    this.disconnected = true
    this.emit('disconnected')
  }
  destroy(): void {
    this.destroyed = true
  }
  /** The other side opens and greets. */
  complete(index: number): void {
    const { channel } = this.connections[index] ?? assert.fail('no such try')
    channel.open()
    channel.deliverFrame('greeting')
  }
}

// The volunteer's sockets to the coordinator, over `ws`: one of text, and one of frames for each relayed link.
import { GridError, MAX_MESSAGE_BYTES, MAX_RELAY_MESSAGE_BYTES, sessionProtocols } from '@starling-grid/protocol'
import type { CoordinatorSocket, RelaySocket } from '@starling-grid/volunteer'
import { WebSocket } from 'ws'
import { adviceFor, socketTrust } from './pinned-certificate.ts'

/** ms: a coordinator that is there answers at once; a wrong address can take minutes */
const OPEN_MS = 5000

/** @throws GridError 'coordinator-lost' when it cannot be reached */
export function dialSocket(url: string): Promise<CoordinatorSocket> {
  return open({ url, maxPayload: MAX_MESSAGE_BYTES }, (socket) => new NodeTextSocket(socket))
}

/** `token`: of the session. @throws GridError 'coordinator-lost' when it cannot be reached, or refuses */
export function dialRelaySocket(url: string, token: string): Promise<RelaySocket> {
  const protocols = sessionProtocols(token)
  return open({ url, protocols, maxPayload: MAX_RELAY_MESSAGE_BYTES }, (socket) => new NodeFrameSocket(socket))
}

/** `wrap` is called at once when the socket opens: a first message may come with the opening. */
function open<T>(
  {
    url,
    protocols = [],
    maxPayload,
  }: { readonly url: string; readonly protocols?: string[]; readonly maxPayload: number },
  wrap: (socket: WebSocket) => T,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, protocols, {
      ...socketTrust(),
      perMessageDeflate: false,
      maxPayload,
      handshakeTimeout: OPEN_MS,
    })
    const fail = (why: string): void =>
      reject(
        new GridError(
          'coordinator-lost',
          `expected a coordinator at ${new URL(url).origin.replace(/^ws/, 'http')}, got: ${why}; check the address`,
        ),
      )
    socket.on('error', (error) => fail(`${error.message || 'no answer'}${adviceFor(error)}`))
    socket.on('open', () => resolve(wrap(socket)))
  })
}

class NodeTextSocket implements CoordinatorSocket {
  onClose: CoordinatorSocket['onClose']
  readonly #socket: WebSocket
  #onMessage: CoordinatorSocket['onMessage']

  /** Not read before its owner listens: the challenge comes with the opening. */
  constructor(socket: WebSocket) {
    this.#socket = socket
    socket.pause()
    socket.on('message', (data, isBinary) => {
      if (!isBinary) this.#onMessage?.(String(data))
    })
    socket.on('close', (code, reason) => this.#closed(String(reason) || `code ${code}`))
  }

  get onMessage(): CoordinatorSocket['onMessage'] {
    return this.#onMessage
  }

  set onMessage(handler: CoordinatorSocket['onMessage']) {
    this.#onMessage = handler
    if (handler !== undefined) this.#socket.resume()
  }

  send(text: string): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text)
  }

  close(): void {
    this.#socket.resume() // or the other side's close would not be read
    this.#socket.close()
  }

  #closed(reason: string): void {
    const handler = this.onClose
    this.onClose = undefined
    handler?.(reason)
  }
}

class NodeFrameSocket implements RelaySocket {
  onClose: RelaySocket['onClose']
  readonly #socket: WebSocket
  #onMessage: RelaySocket['onMessage']

  /** Not read before its owner listens. */
  constructor(socket: WebSocket) {
    this.#socket = socket
    socket.binaryType = 'arraybuffer'
    socket.pause()
    socket.on('message', (data) => {
      if (data instanceof ArrayBuffer) this.#onMessage?.(new Uint8Array(data))
    })
    socket.on('close', (code, reason) => this.onClose?.(String(reason) || `code ${code}`))
  }

  get onMessage(): RelaySocket['onMessage'] {
    return this.#onMessage
  }

  set onMessage(handler: RelaySocket['onMessage']) {
    this.#onMessage = handler
    if (handler !== undefined) this.#socket.resume()
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount
  }

  send(frame: Uint8Array<ArrayBuffer>): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(frame)
  }

  close(): void {
    this.#socket.close()
  }
}

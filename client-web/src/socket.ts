// The browser's WebSocket as the volunteer's sockets to the coordinator: one of text, and one of frames for each
// relayed link.
import { GridError, sessionProtocols } from '@starling-grid/protocol'
import type { CoordinatorSocket, RelaySocket } from '@starling-grid/volunteer'

/** A coordinator that is there answers within milliseconds; a dead address takes the browser minutes. */
const OPEN_MS = 8000

/** @throws GridError 'coordinator-lost' when it cannot be reached */
export async function dialSocket(url: string): Promise<CoordinatorSocket> {
  return new TabTextSocket(await open(url))
}

/** `token`: of the session. @throws GridError 'coordinator-lost' when it cannot be reached, or refuses */
export async function dialRelaySocket(url: string, token: string): Promise<RelaySocket> {
  return new TabFrameSocket(await open(url, sessionProtocols(token)))
}

function open(url: string, protocols: string[] = []): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, protocols)
    const timer = setTimeout(() => fail(`did not answer within ${OPEN_MS / 1000} s`), OPEN_MS)
    const fail = (why: string): void => {
      clearTimeout(timer)
      socket.onopen = null
      socket.onclose = null
      socket.close()
      reject(new GridError('coordinator-lost', `expected a connection to the coordinator, but it ${why}`))
    }
    socket.onclose = () => fail('cannot be reached')
    socket.onopen = () => {
      clearTimeout(timer)
      resolve(socket)
    }
  })
}

class TabTextSocket implements CoordinatorSocket {
  onMessage: CoordinatorSocket['onMessage']
  onClose: CoordinatorSocket['onClose']
  readonly #socket: WebSocket

  constructor(socket: WebSocket) {
    this.#socket = socket
    socket.onmessage = (event: MessageEvent<unknown>) => {
      if (typeof event.data === 'string') this.onMessage?.(event.data)
    }
    socket.onclose = (event) => this.#closed(event.reason || `closed with code ${event.code}`)
  }

  send(text: string): void {
    // A closing socket notifies its owner through onClose.
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text)
  }

  close(): void {
    this.#socket.close()
  }

  #closed(reason: string): void {
    const handler = this.onClose
    this.onClose = undefined
    handler?.(reason)
  }
}

class TabFrameSocket implements RelaySocket {
  onMessage: RelaySocket['onMessage']
  onClose: RelaySocket['onClose']
  readonly #socket: WebSocket

  constructor(socket: WebSocket) {
    this.#socket = socket
    socket.binaryType = 'arraybuffer'
    socket.onmessage = (event: MessageEvent<unknown>) => {
      if (event.data instanceof ArrayBuffer) this.onMessage?.(new Uint8Array(event.data))
    }
    socket.onclose = (event) => this.onClose?.(event.reason || `closed with code ${event.code}`)
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

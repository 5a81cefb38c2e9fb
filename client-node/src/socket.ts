// The volunteer's text socket to the coordinator, over `ws`.
import { GridError, MAX_MESSAGE_BYTES } from '@starling-grid/protocol'
import type { CoordinatorSocket } from '@starling-grid/volunteer'
import { WebSocket } from 'ws'

/** ms: a coordinator that is there answers at once; a wrong address can take minutes */
const OPEN_MS = 5000

/** @throws GridError 'coordinator-lost' when it cannot be reached */
export function dialSocket(url: string): Promise<CoordinatorSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES, handshakeTimeout: OPEN_MS })
    const fail = (why: string): void => reject(new GridError('coordinator-lost', `${new URL(url).origin.replace(/^ws/, 'http')} cannot be reached: ${why}`))
    socket.on('error', (error) => fail(error.message || 'no answer'))
    socket.on('open', () => resolve(new TextSocket(socket)))
  })
}

class TextSocket implements CoordinatorSocket {
  onMessage: CoordinatorSocket['onMessage']
  onClose: CoordinatorSocket['onClose']
  readonly #socket: WebSocket

  constructor(socket: WebSocket) {
    this.#socket = socket
    socket.on('message', (data, isBinary) => {
      if (!isBinary) this.onMessage?.(String(data))
    })
    socket.on('close', (code, reason) => this.#closed(String(reason) || `code ${code}`))
  }

  send(text: string): void {
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

// The browser's WebSocket as the volunteer's text socket to the coordinator.
import { GridError } from '@starling-grid/protocol'
import type { CoordinatorSocket } from '@starling-grid/volunteer'

/** A coordinator that is there answers within milliseconds; a dead address takes the browser minutes. */
const OPEN_MS = 8000

/** @throws GridError 'coordinator-lost' when it cannot be reached */
export function dialSocket(url: string): Promise<CoordinatorSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url)
    const timer = setTimeout(() => fail(`did not answer within ${OPEN_MS / 1000} s`), OPEN_MS)
    const fail = (why: string): void => {
      clearTimeout(timer)
      socket.onopen = socket.onclose = null
      socket.close()
      reject(new GridError('coordinator-lost', `The coordinator ${why}.`))
    }
    socket.onclose = () => fail('cannot be reached')
    socket.onopen = () => {
      clearTimeout(timer)
      resolve(new TextSocket(socket))
    }
  })
}

class TextSocket implements CoordinatorSocket {
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
    // A socket that is closing has told or will tell its owner through onClose.
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

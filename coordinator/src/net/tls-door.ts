// A second door for other machines: browsers give pages WebGPU over https only, unless they come from this machine.
// Behind TLS stands the same HTTP server, with the same guards and limits; connections of this machine need none.
import type { Server as HttpServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { createServer, type Server } from 'node:tls'
import { describeError } from '@starling-grid/protocol'
import { subscriberOf } from '../api/addresses.ts'
import { KeyedCounts } from '../api/counts.ts'

export interface TlsDoorOptions {
  /** PEM */
  readonly certificate: string
  readonly key: string
  readonly host: string
  /** 0: any free one */
  readonly port: number
}

/** ms for a handshake */
const HANDSHAKE_MS = 10_000
/** Handshakes under way of one address: a page opens six connections at once, a household a few pages. */
export const HANDSHAKES_PER_ADDRESS = 64

export class TlsDoor {
  readonly #server: Server

  private constructor(server: Server) {
    this.#server = server
  }

  /** @throws what `listen` fails with */
  static async open(
    http: HttpServer,
    { certificate, key, host, port }: TlsDoorOptions,
    onTrouble: (text: string) => void,
  ): Promise<TlsDoor> {
    const server = createServer({
      cert: certificate,
      key,
      ALPNProtocols: ['http/1.1'],
      handshakeTimeout: HANDSHAKE_MS,
    })
    server.on('secureConnection', (socket) => {
      socket.on('error', () => socket.destroy()) // until the HTTP server has its own listener
      http.emit('connection', socket)
    })
    boundHandshakes(server)
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen({ host, port }, resolve)
    })
    // Where connections exhaust the process, one that cannot be taken ends neither the door nor the coordinator.
    server.on('error', (error) => onTrouble(`the https door: ${describeError(error)}`))
    return new TlsDoor(server)
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** No new connections; those that are open are the HTTP server's. */
  close(): void {
    this.#server.close()
  }
}

/** The HTTP server counts connections whose handshake is over; these are the others. */
export function boundHandshakes(server: Pick<Server, 'on'>): void {
  /** peers whose handshake is under way → their address */
  const underWay = new Map<string, string>()
  const counts = new KeyedCounts()
  const over = (peer: string): void => {
    const address = underWay.get(peer)
    if (underWay.delete(peer) && address !== undefined) counts.remove(address)
  }
  server.on('secureConnection', (socket) => over(peerOf(socket)))
  server.on('connection', (socket: Socket) => {
    const address = subscriberOf(socket.remoteAddress ?? '')
    if (counts.of(address) >= HANDSHAKES_PER_ADDRESS) return void socket.destroy()
    const peer = peerOf(socket)
    underWay.set(peer, address)
    counts.add(address)
    socket.once('close', () => over(peer))
  })
}

function peerOf({ remoteAddress = '', remotePort = 0 }: Socket): string {
  return `${remoteAddress} ${remotePort}`
}

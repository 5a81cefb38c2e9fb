// Sockets between the machines of a rack: TLS with the key that all of them have (RFC 4279). So each side knows the
// other, and no certificate has to be made or kept. Frames are those of WebSocket.
import { createServer, type Server } from 'node:https'
import { describeError, GridError } from '@starling-grid/protocol'
import { RACK_PATH } from '@starling-grid/protocol/rack'
import { type ClientOptions, WebSocket, WebSocketServer } from 'ws'
import { type MachineAddress, nameOf } from './machine-address.ts'

/** Fresh keys of each connection beside the common one: who gets that later reads nothing of what was sent before. */
const SUITE = { ciphers: 'ECDHE-PSK-CHACHA20-POLY1305', maxVersion: 'TLSv1.2', minVersion: 'TLSv1.2' } as const
const IDENTITY = 'starling-rack'
/** ms for a connection to a machine that is there */
const OPEN_MS = 5000
/** ms between looks at the other side, and after which it is gone when it answered none */
const LOOK_MS = 5000
const SILENT_MS = 60_000

/** Of which `onSocket` gets those that know the key. @throws GridError 'port-taken' */
export async function listenInRack(
  { host, port }: { readonly host: string | undefined; readonly port: number },
  { key, maxBytes }: { readonly key: Buffer; readonly maxBytes: number },
  onSocket: (socket: WebSocket, from: string) => void,
): Promise<Server> {
  const server = createServer({
    ...SUITE,
    pskCallback: () => key,
    pskIdentityHint: IDENTITY,
    handshakeTimeout: OPEN_MS,
  })
  const sockets = new WebSocketServer({ server, path: RACK_PATH, maxPayload: maxBytes, perMessageDeflate: false })
  sockets.on('connection', (socket, { socket: { remoteAddress = 'another machine' } }) =>
    onSocket(socket, remoteAddress),
  )
  sockets.on('error', () => undefined) // the server says so, too
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(
        new GridError(
          'port-taken',
          `expected a free port ${port} at ${host ?? 'all addresses'} of this machine: ${describeError(cause)}; ` +
            'choose another with --listen',
          { cause },
        ),
      ),
    )
    server.listen(port, host, resolve)
  })
  server.on('error', () => undefined) // a connection that cannot be taken does not end the process
  return server
}

/** @throws GridError 'link-lost' when it cannot be reached, or has another key */
export function dialInRack(
  machine: MachineAddress,
  { key, maxBytes }: { readonly key: Buffer; readonly maxBytes: number },
): Promise<WebSocket> {
  const trust = {
    ...SUITE,
    pskCallback: () => ({ psk: key, identity: IDENTITY }),
    checkServerIdentity: () => undefined,
  }
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`wss://${nameOf(machine)}${RACK_PATH}`, {
      ...(trust as unknown as ClientOptions), // handed to node:tls, whose check may return nothing
      perMessageDeflate: false,
      maxPayload: maxBytes,
      handshakeTimeout: OPEN_MS,
    })
    socket.once('open', () => resolve(socket))
    socket.on('error', (cause) =>
      reject(
        new GridError(
          'link-lost',
          `expected a machine that is lent at ${nameOf(machine)}, with the same key, got: ${describeError(cause)}`,
          { cause },
        ),
      ),
    )
  })
}

/** Ends a socket whose other side is gone without a word: a machine without power closes nothing. */
export function endWhenSilent(socket: WebSocket): void {
  let heardAt = performance.now()
  const heard = (): void => {
    heardAt = performance.now()
  }
  socket.on('pong', heard)
  socket.on('ping', heard)
  socket.on('message', heard)
  const timer = setInterval(() => {
    if (performance.now() - heardAt > SILENT_MS) socket.terminate()
    else if (socket.readyState === WebSocket.OPEN) socket.ping()
  }, LOOK_MS)
  socket.once('close', () => clearInterval(timer))
}

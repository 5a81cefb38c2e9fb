// Where this process takes links over TCP: a listening socket and a certificate of its own. TLS on both sides, each
// pinned to one certificate: nobody enters but members that knocked (volunteer/src/link/doors.ts). Who is not let in is
// gone before anything is kept for it.
import { constants } from 'node:crypto'
import { createServer, type AddressInfo, isIPv6, type Server, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { connect, createServer as createTlsServer, type Server as TlsServer, type TLSSocket } from 'node:tls'
import {
  describeError,
  type MemberDoor,
  GridError,
  isLoopbackUrl,
  LOWEST_DOOR_PORT,
  MAX_DOOR_ADDRESSES,
  type MemberId,
  type Sha256,
} from '@starling-grid/protocol'
import { ChannelLink } from '@starling-grid/volunteer'
import { type DoorHost, type DoorKeeper, LinkOpening, type LinkOpeningOptions } from '@starling-grid/volunteer/links'
import { fingerprintOf, type OwnCertificate, ownCertificate } from './own-certificate.ts'
import { TcpChannel } from './tcp-channel.ts'

/** ms for a TLS handshake that others begin */
const HANDSHAKE_MS = 3000
/** Handshakes of others under way, and those of one address: neighbours come once, one after the other. */
const MAX_HANDSHAKES = 64
export const MAX_HANDSHAKES_PER_ADDRESS = 32
/** Tells it from other uses of TLS, so that no other service takes part by accident. */
const PROTOCOL = 'starling-link/1'

/** Where to listen: `--listen ADDRESS[:PORT[-PORT]]`. */
export interface ListenPlace {
  /** absent: of all interfaces, and of this machine alone when the coordinator is on it */
  readonly address?: string | undefined
  /** the first that is free; absent: any */
  readonly ports?: readonly [from: number, to: number] | undefined
}

/** @throws GridError 'usage' when the place is not free, or none of this machine */
export async function openTcpDoor(coordinatorUrl: string, place: ListenPlace = {}): Promise<DoorKeeper> {
  const server = createServer()
  await listen(server, { address: isLoopbackUrl(coordinatorUrl) ? '127.0.0.1' : undefined, ...place })
  return new TcpDoor(server, ownCertificate(), isLoopbackUrl(coordinatorUrl))
}

async function listen(server: Server, { address, ports = [0, 0] }: ListenPlace): Promise<void> {
  const [from, to] = ports
  for (let port = from; ; port++) {
    try {
      return await listenAt(server, port, address)
    } catch (cause) {
      const isTaken = cause instanceof Error && 'code' in cause && cause.code === 'EADDRINUSE'
      if (isTaken && port < to) continue
      throw new GridError(
        'usage',
        `expected an address of this machine with a free port for links, got ${address ?? 'all'} with ports ` +
          `${from} to ${to}: ${describeError(cause)}; name others with --listen, or do without (--no-tcp)`,
        { cause },
      )
    }
  }
}

function listenAt(server: Server, port: number, host: string | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, host }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

class TcpDoor implements DoorKeeper {
  readonly #server: Server
  /** hears of connections from us, and listens at no place itself */
  readonly #tls: TlsServer
  readonly #certificate: OwnCertificate
  readonly #isLocal: boolean
  /** connections whose handshake is under way, by the place that they come from */
  readonly #handshakes = new Map<string, Socket>()
  #host: DoorHost | undefined

  constructor(server: Server, certificate: OwnCertificate, isLocal: boolean) {
    this.#server = server
    this.#certificate = certificate
    this.#isLocal = isLocal
    this.#tls = createTlsServer({
      ...identityOf(certificate),
      requestCert: true,
      handshakeTimeout: HANDSHAKE_MS,
    })
    this.#tls.on('secureConnection', (socket) => this.#entered(socket))
    this.#tls.on('tlsClientError', (_, socket) => socket.destroy())
    server.on('connection', (socket) => this.#knocked(socket))
    server.on('error', () => undefined) // a connection that cannot be taken ends neither the door nor the process
  }

  get own(): MemberDoor {
    const { port } = this.#server.address() as AddressInfo
    return { fingerprint: this.#certificate.fingerprint, port, addresses: this.#addresses() }
  }

  #addresses(): string[] {
    const { address } = this.#server.address() as AddressInfo
    if (address !== '::' && address !== '0.0.0.0') return [address]
    const all = Object.values(networkInterfaces()).flatMap((of) => of ?? [])
    const reached = all.filter(({ internal, address: one }) => !internal && !one.toLowerCase().startsWith('fe80'))
    const here = this.#isLocal ? ['127.0.0.1'] : []
    return [...here, ...reached.map((one) => one.address)].slice(0, MAX_DOOR_ADDRESSES)
  }

  open(host: DoorHost): void {
    this.#host = host
  }

  close(): void {
    this.#host = undefined
    this.#server.close()
    for (const socket of this.#handshakes.values()) socket.destroy()
  }

  async dial(
    { member, door: { addresses, port, fingerprint } }: Parameters<DoorKeeper['dial']>[0],
    options: LinkOpeningOptions,
  ): Promise<ChannelLink> {
    const connecting = new AbortController()
    const signal = AbortSignal.any([options.signal, connecting.signal, AbortSignal.timeout(options.milliseconds)])
    const tries = addresses.map((host) => this.#connect({ host, port, fingerprint }, signal))
    try {
      const socket = await Promise.any(tries)
      void closeOthers(tries, socket)
      return await this.#link(socket, { member, fingerprint }, options)
    } catch (error) {
      options.signal.throwIfAborted()
      const [cause = error] = error instanceof AggregateError ? (error.errors as unknown[]) : []
      throw new GridError('link-lost', `no link to ${member} over TCP: ${describeError(cause)}`, { cause })
    } finally {
      connecting.abort()
    }
  }

  /** A connection to the one that has this certificate. Nothing is sent to another. */
  #connect(
    { host, port, fingerprint }: { readonly host: string; readonly port: number; readonly fingerprint: Sha256 },
    signal: AbortSignal,
  ): Promise<TLSSocket> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, ...identityOf(this.#certificate) })
      const giveUp = (error: Error): void => {
        socket.destroy()
        reject(error)
      }
      const abort = (): void => giveUp(new Error(describeError(signal.reason)))
      socket.on('error', giveUp)
      socket.on('close', () => reject(new Error('closed by the other side')))
      signal.addEventListener('abort', abort, { once: true })
      socket.once('secureConnect', () => {
        signal.removeEventListener('abort', abort)
        if (certificateOf(socket) === fingerprint) resolve(socket)
        else giveUp(new Error('expected the certificate that the member named, got another'))
      })
      if (signal.aborted) abort()
    })
  }

  /** Before TLS begins: who comes too often costs a closed socket. */
  #knocked(socket: Socket): void {
    const { remoteAddress = '' } = socket
    const ofAddress = [...this.#handshakes.values()].filter((other) => other.remoteAddress === remoteAddress).length
    if (this.#host === undefined || this.#handshakes.size >= MAX_HANDSHAKES || ofAddress >= MAX_HANDSHAKES_PER_ADDRESS)
      return void socket.destroy()
    const place = placeOf(socket)
    this.#handshakes.set(place, socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => this.#handshakes.delete(place))
    this.#tls.emit('connection', socket)
  }

  #entered(socket: TLSSocket): void {
    this.#handshakes.delete(placeOf(socket))
    socket.on('error', () => socket.destroy())
    const fingerprint = certificateOf(socket)
    const member = fingerprint === undefined ? undefined : this.#host?.guestWith(fingerprint)
    const options = this.#host?.options(false)
    if (member === undefined || fingerprint === undefined || options === undefined) return void socket.destroy()
    this.#host?.arriving(member, this.#link(socket, { member, fingerprint }, options))
  }

  #link(
    socket: TLSSocket,
    { member, fingerprint }: { readonly member: MemberId; readonly fingerprint: Sha256 },
    options: LinkOpeningOptions,
  ): Promise<ChannelLink> {
    const channel = new TcpChannel(
      socket,
      (frame) => opening.received(frame),
      (reason) => link.close(reason),
    )
    const link = new ChannelLink(member, channel, 'tcp')
    channel.link = link
    const opening = new LinkOpening(link, options, {
      here: () => inProofs(this.#certificate.fingerprint),
      there: () => inProofs(fingerprint),
    })
    return opening.open(() => opening.opened())
  }
}

/** Told apart from a certificate of DTLS: a proof for one kind of link is worth nothing for another. */
function inProofs(fingerprint: Sha256): string {
  return `tls sha-256 ${fingerprint}`
}

/** Certificates are pinned by their fingerprint once the handshake is over; until then nothing is sent or read. */
function identityOf({ cert, key }: OwnCertificate): object {
  return {
    cert,
    key,
    rejectUnauthorized: false,
    minVersion: 'TLSv1.3',
    ciphers: 'TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256',
    ALPNProtocols: [PROTOCOL],
    secureOptions: constants.SSL_OP_NO_TICKET, // no session is taken up again
  }
}

/** Undefined: it showed none, or speaks of something else. */
function certificateOf(socket: TLSSocket): Sha256 | undefined {
  const certificate = socket.getPeerX509Certificate()
  return certificate === undefined || socket.alpnProtocol !== PROTOCOL ? undefined : fingerprintOf(certificate)
}

async function closeOthers(tries: readonly Promise<TLSSocket>[], kept: TLSSocket): Promise<void> {
  for (const other of await Promise.allSettled(tries))
    if (other.status === 'fulfilled' && other.value !== kept) other.value.destroy()
}

function placeOf({ remoteAddress = '', remotePort = 0 }: Socket): string {
  return `${remoteAddress} ${remotePort}`
}

/** "ADDRESS", "ADDRESS:PORT" or "ADDRESS:FROM-TO", an IPv6 address in brackets. @throws GridError 'usage' */
export function listenPlaceIn(text: string): ListenPlace {
  const [, bracketed, plain, from, to = from] =
    /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::(\d{1,5})(?:-(\d{1,5}))?)?$/i.exec(text) ?? []
  const address = bracketed ?? plain
  const ports = from === undefined ? undefined : ([Number(from), Number(to)] as const)
  const fits = ports === undefined || (ports[0] >= LOWEST_DOOR_PORT && ports[0] <= ports[1] && ports[1] <= 65_535)
  if (address !== undefined && fits && (bracketed === undefined || isIPv6(bracketed))) return { address, ports }
  throw new GridError(
    'usage',
    `expected --listen ADDRESS[:PORT[-PORT]] with ports from ${LOWEST_DOOR_PORT} on, got "${text.slice(0, 60)}"; ` +
      'for example --listen 0.0.0.0:9000-9010',
  )
}

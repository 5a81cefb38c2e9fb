// Links of the window used from a Worker, over a MessagePort: RTCPeerConnection exists in windows only, training runs
// in a Worker. Buffers are transferred: a frame is copied once on its way out, and not at all on its way in. Both ends
// are our own code, so messages are trusted.
import {
  GridError,
  LOW_WATER_BYTES,
  describeError,
  isErrorCode,
  isGridError,
  type MemberId,
} from '@starling-grid/protocol'
import {
  ChannelLink,
  type Channel,
  type PeerLink,
  type PeerNetwork,
  type SignallingAccess,
} from '@starling-grid/volunteer'

type FrameBytes = Uint8Array<ArrayBuffer>

/** Worker → window. `call` numbers a dial, `link` a link; the window gives the link numbers. */
type ToWindow =
  | { readonly type: 'listen'; readonly listening: boolean }
  | { readonly type: 'expect'; readonly members: readonly MemberId[] }
  | { readonly type: 'dial'; readonly call: number; readonly peer: MemberId }
  | { readonly type: 'abort'; readonly call: number }
  | { readonly type: 'send'; readonly link: number; readonly frame: FrameBytes }
  | { readonly type: 'close'; readonly link: number; readonly reason: string }
  | { readonly type: 'reconnect'; readonly access: SignallingAccess }
  | { readonly type: 'stop' }

/** Window → Worker. */
type LinkToWorker =
  | { readonly type: 'dialled'; readonly call: number; readonly link: LinkDescription }
  | { readonly type: 'failed'; readonly call: number; readonly code: string; readonly message: string }
  | { readonly type: 'accepted'; readonly link: LinkDescription }
  /** the window's link took the frame: its bytes count no more against the high-water mark of the Worker */
  | { readonly type: 'sent'; readonly link: number; readonly bytes: number }
  | { readonly type: 'frame'; readonly link: number; readonly frame: FrameBytes }
  | { readonly type: 'closed'; readonly link: number; readonly reason: string }

interface LinkDescription {
  readonly id: number
  readonly peer: MemberId
  readonly carrier: PeerLink['carrier']
}

/** In the window: lets the Worker at the other end of `port` use `network`, until it stops it. */
export function servePeerNetwork(port: MessagePort, network: PeerNetwork): void {
  const server = new BridgeServer(port, network)
  port.onmessage = (event: MessageEvent<ToWindow>) => server.take(event.data)
}

class BridgeServer {
  readonly #port: MessagePort
  readonly #network: PeerNetwork
  readonly #links = new Map<number, PeerLink>()
  readonly #calls = new Map<number, AbortController>()
  #lastLink = 0

  constructor(port: MessagePort, network: PeerNetwork) {
    this.#port = port
    this.#network = network
  }

  take(message: ToWindow): void {
    switch (message.type) {
      case 'listen':
        this.#network.onLink = message.listening
          ? (link) => this.#tell({ type: 'accepted', link: this.#serve(link) })
          : undefined
        return
      case 'expect':
        return this.#network.expect(message.members)
      case 'dial':
        return void this.#dial(message.call, message.peer)
      case 'abort':
        return this.#calls.get(message.call)?.abort()
      case 'send':
        return this.#send(message.link, message.frame)
      case 'close':
        return this.#links.get(message.link)?.close(message.reason)
      case 'reconnect':
        return this.#network.reconnect(message.access)
      case 'stop':
        return this.#network.stop()
      default:
        message satisfies never
    }
  }

  async #dial(call: number, peer: MemberId): Promise<void> {
    const abort = new AbortController()
    this.#calls.set(call, abort)
    try {
      const link = await this.#network.dial(peer, abort.signal)
      this.#tell({ type: 'dialled', call, link: this.#serve(link) })
    } catch (error) {
      this.#tell({
        type: 'failed',
        call,
        code: isGridError(error) ? error.code : 'link-lost',
        message: describeError(error),
      })
    } finally {
      this.#calls.delete(call)
    }
  }

  #serve(link: PeerLink): LinkDescription {
    const id = ++this.#lastLink
    this.#links.set(id, link)
    // Setting onFrame delivers what came early; so the Worker gets the link first.
    queueMicrotask(() => {
      link.onFrame = (frame) => this.#tellFrame(id, ownBuffer(frame))
    })
    link.onClose = (reason) => {
      this.#links.delete(id)
      this.#tell({ type: 'closed', link: id, reason })
    }
    return { id, peer: link.peer, carrier: link.carrier }
  }

  #send(id: number, frame: FrameBytes): void {
    const bytes = frame.byteLength
    this.#links
      .get(id)
      ?.send(frame)
      .then(
        () => this.#tell({ type: 'sent', link: id, bytes }),
        () => {}, // the close is told by onClose
      )
  }

  #tellFrame(link: number, frame: FrameBytes): void {
    this.#port.postMessage({ type: 'frame', link, frame } satisfies LinkToWorker, [frame.buffer])
  }

  #tell(message: LinkToWorker): void {
    this.#port.postMessage(message)
  }
}

/** In the Worker: the network that the window serves at the other end of `port`. */
export function bridgedPeerNetwork(port: MessagePort): PeerNetwork {
  const network = new BridgedNetwork(port)
  port.onmessage = (event: MessageEvent<LinkToWorker>) => network.take(event.data)
  return network
}

interface PendingDial {
  readonly resolve: (link: PeerLink) => void
  readonly reject: (error: unknown) => void
}

class BridgedNetwork implements PeerNetwork {
  readonly #port: MessagePort
  readonly #channels = new Map<number, BridgedChannel>()
  readonly #dials = new Map<number, PendingDial>()
  #lastCall = 0
  #onLink: PeerNetwork['onLink']

  constructor(port: MessagePort) {
    this.#port = port
  }

  get onLink(): PeerNetwork['onLink'] {
    return this.#onLink
  }

  set onLink(handler: PeerNetwork['onLink']) {
    this.#onLink = handler
    this.#tell({ type: 'listen', listening: handler !== undefined })
  }

  dial(peer: MemberId, signal: AbortSignal): Promise<PeerLink> {
    if (signal.aborted) return Promise.reject(signal.reason)
    const call = ++this.#lastCall
    return new Promise<PeerLink>((resolve, reject) => {
      const abort = (): void => {
        this.#dials.delete(call)
        this.#tell({ type: 'abort', call })
        reject(signal.reason)
      }
      const settled =
        <T>(settle: (value: T) => void) =>
        (value: T): void => {
          signal.removeEventListener('abort', abort)
          this.#dials.delete(call)
          settle(value)
        }
      signal.addEventListener('abort', abort)
      this.#dials.set(call, { resolve: settled(resolve), reject: settled(reject) })
      this.#tell({ type: 'dial', call, peer })
    })
  }

  expect(members: readonly MemberId[]): void {
    this.#tell({ type: 'expect', members })
  }

  reconnect(access: SignallingAccess): void {
    this.#tell({ type: 'reconnect', access: { ...access, identity: undefined } }) // the window keeps the first
  }

  stop(): void {
    this.#tell({ type: 'stop' })
  }

  take(message: LinkToWorker): void {
    switch (message.type) {
      case 'dialled':
        return this.#dialled(message.call, this.#open(message.link))
      case 'failed':
        return this.#dials.get(message.call)?.reject(asGridError(message.code, message.message))
      case 'accepted': {
        const link = this.#open(message.link)
        return this.#onLink === undefined ? link.close('links are not taken now') : this.#onLink(link)
      }
      case 'sent':
        return this.#channels.get(message.link)?.sent(message.bytes)
      case 'frame':
        return this.#channels.get(message.link)?.link.received(message.frame)
      case 'closed': {
        this.#channels.get(message.link)?.link.close(message.reason)
        this.#channels.delete(message.link)
        return
      }
      default:
        message satisfies never
    }
  }

  #dialled(call: number, link: PeerLink): void {
    const dial = this.#dials.get(call)
    if (dial === undefined) link.close('the dial was aborted')
    else dial.resolve(link)
  }

  #open({ id, peer, carrier }: LinkDescription): ChannelLink {
    const channel = new BridgedChannel(this.#port, id, { peer, carrier })
    this.#channels.set(id, channel)
    return channel.link
  }

  #tell(message: ToWindow): void {
    this.#port.postMessage(message)
  }
}

/** The Worker's end of one link. What the window has not accepted yet counts as buffered. */
class BridgedChannel implements Channel {
  readonly link: ChannelLink
  readonly #port: MessagePort
  readonly #id: number
  bufferedBytes = 0

  constructor(port: MessagePort, id: number, { peer, carrier }: Omit<LinkDescription, 'id'>) {
    this.#port = port
    this.#id = id
    this.link = new ChannelLink(peer, this, carrier)
  }

  write(frame: FrameBytes): void {
    const own = frame.slice()
    this.bufferedBytes += own.byteLength
    this.#port.postMessage({ type: 'send', link: this.#id, frame: own } satisfies ToWindow, [own.buffer])
  }

  sent(bytes: number): void {
    this.bufferedBytes -= bytes
    if (this.bufferedBytes <= LOW_WATER_BYTES) this.link.drained()
  }

  close(reason: string): void {
    this.#port.postMessage({ type: 'close', link: this.#id, reason } satisfies ToWindow)
  }
}

/** A frame that is alone in its buffer, so that the buffer can be transferred. */
function ownBuffer(frame: Uint8Array): FrameBytes {
  const alone = frame.buffer instanceof ArrayBuffer && frame.byteLength === frame.buffer.byteLength
  return alone ? (frame as FrameBytes) : frame.slice()
}

function asGridError(code: string, message: string): GridError {
  return new GridError(isErrorCode(code) ? code : 'link-lost', message)
}

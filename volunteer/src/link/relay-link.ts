// A link whose frames go through the coordinator, for two members that cannot reach each other (R18). Both ends dial;
// the coordinator joins them. The same for tabs and Node: only the socket differs.
import {
  describeError,
  GridError,
  LINK_OPEN_MS,
  LOW_WATER_BYTES,
  type MemberId,
  relayPath,
  type Clock,
} from '@starling-grid/protocol'
import { type Channel, ChannelLink } from './channel-link.ts'
import { greeting, requireGreeting } from './greeting.ts'
import type { PeerLink } from './peer-link.ts'

/** ms before the next try: the coordinator may not relay this link yet, or no longer */
const PAUSE_MS = 300
/** ms between looks at a full socket: the browser's has no event for having written out */
const LOOK_MS = 5

/** A socket of binary messages to the coordinator. The browser's WebSocket and `ws` both fit. */
export interface RelaySocket {
  send(frame: Uint8Array<ArrayBuffer>): void
  /** bytes accepted by `send` and not yet handed to the network */
  readonly bufferedBytes: number
  close(): void
  onMessage: ((bytes: Uint8Array) => void) | undefined
  onClose: ((reason: string) => void) | undefined
}

export interface RelayAccess {
  readonly self: MemberId
  /** the session's token */
  readonly token: string
  /** for a link to open; LINK_OPEN_MS where it is not said */
  readonly linkOpenMs?: number | undefined
  readonly clock: Clock
  /** @throws GridError 'coordinator-lost' when the socket cannot be opened, also when the coordinator refuses */
  dial(path: string, token: string): Promise<RelaySocket>
}

/**
 * Open when the other end greeted. Time-boxed and retried inside `linkOpenMs`.
 * @throws GridError 'link-timeout' when it could not be opened, or the signal's reason
 */
export async function openRelayLink(access: RelayAccess, peer: MemberId, signal: AbortSignal): Promise<PeerLink> {
  const { linkOpenMs = LINK_OPEN_MS, clock } = access
  const late = new AbortController()
  const cancelTimer = clock.timer(linkOpenMs, () => late.abort())
  try {
    return await tryUntil(access, peer, { signal, deadline: AbortSignal.any([signal, late.signal]), linkOpenMs })
  } finally {
    cancelTimer()
  }
}

async function tryUntil(
  access: RelayAccess,
  peer: MemberId,
  {
    signal,
    deadline,
    linkOpenMs,
  }: { readonly signal: AbortSignal; readonly deadline: AbortSignal; readonly linkOpenMs: number },
): Promise<PeerLink> {
  for (let reason = 'the coordinator did not answer'; ; await access.clock.sleep(PAUSE_MS, deadline)) {
    signal.throwIfAborted()
    if (deadline.aborted)
      throw new GridError('link-timeout', `no relayed link to ${peer} within ${linkOpenMs} ms: ${reason}`)
    try {
      return await tryOnce(access, peer, deadline)
    } catch (error) {
      reason = describeError(error)
    }
  }
}

async function tryOnce(
  { self, token, clock, dial }: RelayAccess,
  peer: MemberId,
  signal: AbortSignal,
): Promise<PeerLink> {
  const socket = await dial(relayPath({ self, peer }), token)
  const channel = new RelayChannel(socket, clock)
  const link = new ChannelLink(peer, channel, 'relay')
  channel.link = link
  socket.onClose = (reason) => link.close(reason)
  const abort = (): void => link.close('given up')
  signal.addEventListener('abort', abort)
  try {
    if (signal.aborted) abort()
    const greeted = awaitGreeting(socket, link)
    await link.send(greeting(self))
    await Promise.race([greeted, link.closed.then((reason) => Promise.reject(new GridError('link-lost', reason)))])
    return link
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** The first message is a greeting, all others are the owner's: also one that comes with it. */
function awaitGreeting(socket: RelaySocket, link: ChannelLink): Promise<void> {
  return new Promise((resolve) => {
    socket.onMessage = (bytes) => {
      try {
        requireGreeting(bytes)
      } catch (error) {
        return link.close(describeError(error))
      }
      socket.onMessage = (frame) => link.received(frame)
      resolve()
    }
  })
}

class RelayChannel implements Channel {
  link: ChannelLink | undefined
  readonly #socket: RelaySocket
  readonly #clock: Clock
  #looking = false

  constructor(socket: RelaySocket, clock: Clock) {
    this.#socket = socket
    this.#clock = clock
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedBytes
  }

  write(frame: Uint8Array<ArrayBuffer>): void {
    // A socket may hold on to what it was given until that is written out.
    this.#socket.send(frame.slice())
    if (this.bufferedBytes > LOW_WATER_BYTES) this.#look()
  }

  close(): void {
    this.#socket.close()
  }

  /** Until the buffer is low enough for a waiting send to go on. */
  #look(): void {
    if (this.#looking) return
    this.#looking = true
    this.#clock.timer(LOOK_MS, () => {
      this.#looking = false
      if (this.bufferedBytes <= LOW_WATER_BYTES) this.link?.drained()
      else this.#look()
    })
  }
}

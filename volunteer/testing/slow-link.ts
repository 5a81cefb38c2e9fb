// A network whose line carries so many bytes a second from this end and needs its time for each, as those of homes do.
// What a machine's own loopback takes is work of its cores and not time on a line. All links of a network share its
// line; those of a host share it with what it sends to the coordinator.
import type { SendRequest } from '../src/coordinator-http.ts'
import type { VolunteerHost } from '../src/host.ts'
import type { PeerLink, PeerNetwork } from '../src/link/peer-link.ts'

/** ms of traffic that a sender may be ahead of the line: timers come no oftener under load */
const BURST_MS = 20

export interface LineSpeed {
  readonly bytesPerMs: number
  /** ms, one way */
  readonly latencyMs: number
}

interface SlowLine extends LineSpeed {
  freeAt: number
}

/** What this host sends, and what the coordinator answers it over HTTP, takes as long as over such a line. */
export function overLine(host: VolunteerHost, speed: LineSpeed): VolunteerHost {
  const [up, down]: SlowLine[] = [
    { ...speed, freeAt: 0 },
    { ...speed, freeAt: 0 },
  ]
  const { sendRequest } = host
  if (up === undefined || down === undefined || sendRequest === undefined)
    throw new Error('internal: only the requests of a host that sends them itself are slowed down')
  return {
    ...host,
    openPeerNetwork: async (access) => onLine(await host.openPeerNetwork(access), up),
    sendRequest: slowRequests(sendRequest, up, down),
  }
}

function slowRequests(send: SendRequest, up: SlowLine, down: SlowLine): SendRequest {
  return async (url, asked) => {
    await until(carried(up, asked.body?.byteLength ?? 0) + up.latencyMs)
    const response = await send(url, asked)
    await until(performance.now() + down.latencyMs)
    const slow = new TransformStream<Uint8Array, Uint8Array>({
      async transform(piece, into) {
        await until(carried(down, piece.byteLength))
        into.enqueue(piece)
      },
    })
    return new Response(response.body?.pipeThrough(slow) ?? null, response)
  }
}

/** When the last of these bytes is on the line, after all that were sent before. */
function carried(line: SlowLine, bytes: number): number {
  line.freeAt = Math.max(line.freeAt, performance.now()) + bytes / line.bytesPerMs
  return line.freeAt
}

export function slowNetwork(network: PeerNetwork, bytesPerMs: number, latencyMs = 0): PeerNetwork {
  return onLine(network, { bytesPerMs, latencyMs, freeAt: 0 })
}

function onLine(network: PeerNetwork, line: SlowLine): PeerNetwork {
  return {
    get onLink() {
      return network.onLink
    },
    set onLink(take) {
      network.onLink = take && ((link) => take(slowLink(link, line)))
    },
    dial: async (peer, signal) => slowLink(await network.dial(peer, signal), line),
    expect: (members) => network.expect(members),
    reconnect: (access) => network.reconnect(access),
    stop: () => network.stop(),
  }
}

/** The same link, whose `send` takes as long as the line would. */
function slowLink(link: PeerLink, line: SlowLine): PeerLink {
  const send = link.send.bind(link)
  let last: Promise<void> = Promise.resolve()
  let arrived: Promise<void> = Promise.resolve()
  const take = async (frame: Uint8Array<ArrayBuffer>): Promise<void> => {
    const wait = carried(line, frame.byteLength) - performance.now() - BURST_MS
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait))
    if (line.latencyMs === 0) return send(frame)
    const onItsWay = frame.slice() // the sender uses its memory again
    const due = line.freeAt + line.latencyMs // its last byte has left then, however far ahead its sender is
    arrived = arrived
      .then(() => until(due))
      .then(() => send(onItsWay))
      .catch(() => undefined) // a closed link says so itself
  }
  return Object.assign(link, {
    // The sender uses the frame's memory again as soon as this resolves.
    send(frame: Uint8Array<ArrayBuffer>): Promise<void> {
      last = last.then(() => take(frame))
      return last
    },
  } satisfies Partial<PeerLink>)
}

function until(due: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())))
}

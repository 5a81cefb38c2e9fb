// A network whose line carries so many bytes a second from this end and needs its time for each, as those of homes do.
// What a machine's own loopback takes is work of its cores and not time on a line. All links of a network share its
// line.
import type { PeerLink, PeerNetwork } from '../src/link/peer-link.ts'

/** ms of traffic that a sender may be ahead of the line: timers come no oftener under load */
const BURST_MS = 20

interface SlowLine {
  readonly bytesPerMs: number
  /** ms, one way */
  readonly latencyMs: number
  freeAt: number
}

export function slowNetwork(network: PeerNetwork, bytesPerMs: number, latencyMs = 0): PeerNetwork {
  const line: SlowLine = { bytesPerMs, latencyMs, freeAt: 0 }
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
    line.freeAt = Math.max(line.freeAt, performance.now()) + frame.byteLength / line.bytesPerMs
    const wait = line.freeAt - performance.now() - BURST_MS
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

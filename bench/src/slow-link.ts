// A network whose links carry so many bytes a second in each direction, as those of homes do: what a machine's own loopback
// takes is work of its cores and not time on a line.
import type { PeerLink, PeerNetwork } from '@starling-grid/volunteer'

/** ms of traffic that leave at once: timers come no oftener under load */
const BURST_MS = 20

export function slowNetwork(network: PeerNetwork, bytesPerMs: number): PeerNetwork {
  return {
    get onLink() {
      return network.onLink
    },
    set onLink(take) {
      network.onLink = take && ((link) => take(slowLink(link, bytesPerMs)))
    },
    dial: async (peer, signal) => slowLink(await network.dial(peer, signal), bytesPerMs),
    reconnect: (access) => network.reconnect(access),
    stop: () => network.stop(),
  }
}

/** The same link, whose `send` takes as long as the line would. */
function slowLink(link: PeerLink, bytesPerMs: number): PeerLink {
  const send = link.send.bind(link)
  let freeAt = 0
  let last: Promise<void> = Promise.resolve()
  const take = async (frame: Uint8Array<ArrayBuffer>): Promise<void> => {
    freeAt = Math.max(freeAt, performance.now()) + frame.byteLength / bytesPerMs
    const wait = freeAt - performance.now() - BURST_MS
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait))
    await send(frame)
  }
  return Object.assign(link, { send: (frame: Uint8Array<ArrayBuffer>) => (last = last.then(() => take(frame))) })
}

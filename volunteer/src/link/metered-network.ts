// A network whose links ask before every frame whether it may leave: the owner's limit holds for all of them together.
import { GridError } from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork } from './peer-link.ts'

/** `take`: of bytes that are about to be sent; throws when they may not */
export function meteredNetwork(network: PeerNetwork, take: (bytes: number) => void): PeerNetwork {
  return {
    get onLink() {
      return network.onLink
    },
    set onLink(handler) {
      network.onLink = handler && ((link) => handler(metered(link, take)))
    },
    dial: async (peer, signal) => metered(await network.dial(peer, signal), take),
    expect: (members) => network.expect(members),
    reconnect: (access) => network.reconnect(access),
    stop: () => network.stop(),
  }
}

/** The same link. */
export function metered(link: PeerLink, take: (bytes: number) => void): PeerLink {
  const send = link.send.bind(link)
  return Object.assign(link, {
    send: async (frame: Uint8Array<ArrayBuffer>): Promise<void> => {
      take(frame.byteLength)
      await send(frame)
    },
  })
}

/** For a volunteer that shows its address to no other: the coordinator relays its links (R18). */
export function noDirectLinks(): PeerNetwork {
  return {
    onLink: undefined,
    dial: () =>
      Promise.reject(new GridError('link-timeout', 'this volunteer takes links through the coordinator only')),
    expect: () => undefined,
    reconnect: () => undefined,
    stop: () => undefined,
  }
}

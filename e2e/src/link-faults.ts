// Faults in how a volunteer reaches others: members that no direct link reaches, and links that carry nothing for a
// while.
import { GridError, LINK_OPEN_MS, memberId, type MemberId } from '@starling-grid/protocol'
import {
  openPeerJsNetwork,
  type PeerJsPlatform,
  type PeerLink,
  type PeerNetwork,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import type { PeerJsClient, RtcConnection } from '@starling-grid/volunteer/testing'
import { wrapLinks } from './frame-faults.ts'

/** What a test tells a volunteer that was started with the fault `partition`. */
export interface PartitionOrder {
  readonly type: 'cut' | 'heal'
  readonly peer: string
}

/** ms between looks at whether a cut link was healed */
const LOOK_MS = 100

/** As behind two routers that let nothing in: no direct link opens to the first `count` members that it meets. */
export function withoutIce(
  host: VolunteerHost,
  openWebRtc: () => Promise<PeerJsPlatform>,
  count: number,
): VolunteerHost {
  const unreachable = new Set<string>()
  const isUnreachable = (peer: string): boolean => {
    if (unreachable.size < count) unreachable.add(peer)
    return unreachable.has(peer)
  }
  return {
    ...host,
    openPeerNetwork: async (access) => {
      const platform = await openWebRtc()
      return openPeerJsNetwork(
        { ...platform, createPeer: (id, options) => deafTo(platform.createPeer(id, options), isUnreachable) },
        access,
      )
    },
  }
}

/** No member reaches it, not even through the coordinator: a network that lets nothing but the one socket out. */
export function withoutLinks(host: VolunteerHost, openWebRtc: () => Promise<PeerJsPlatform>): VolunteerHost {
  return {
    ...withoutIce(host, openWebRtc, Number.POSITIVE_INFINITY),
    dialRelay: async () => {
      throw new GridError('coordinator-lost', 'the relay is refused')
    },
  }
}

type Listen = (event: string, listener: (connection: RtcConnection) => void) => unknown

/** Neither its offers nor theirs lead to anything. */
function deafTo(client: PeerJsClient, isUnreachable: (peer: string) => boolean): PeerJsClient {
  const connect = client.connect.bind(client)
  const on = client.on.bind(client) as Listen
  const listen: Listen = (event, listener) =>
    on(
      event,
      event === 'connection'
        ? (connection) => (isUnreachable(connection.peer) ? connection.close() : listener(connection))
        : listener,
    )
  return Object.assign(client, {
    on: listen,
    connect: (peer: string, options: Parameters<typeof connect>[1]) =>
      isUnreachable(peer) ? undefined : connect(peer, options),
  })
}

/**
 * Links that can be cut and healed: while one is cut its frames are lost both ways without a notice, and none opens.
 */
export class Partition {
  readonly #cut = new Set<MemberId>()

  obey({ type, peer }: PartitionOrder): void {
    if (type === 'cut') this.#cut.add(memberId(peer))
    else this.#cut.delete(memberId(peer))
  }

  in(host: VolunteerHost): VolunteerHost {
    return {
      ...host,
      openPeerNetwork: async (access) => this.#over(await host.openPeerNetwork(access), access.linkOpenMs),
    }
  }

  #over(network: PeerNetwork, linkOpenMs = LINK_OPEN_MS): PeerNetwork {
    const wrapped = wrapLinks(network, (link) => lossy(link, () => this.#cut.has(link.peer)))
    const dial = wrapped.dial.bind(wrapped)
    wrapped.dial = async (peer, signal) => {
      await this.#healed(peer, linkOpenMs, signal)
      return dial(peer, signal)
    }
    return wrapped
  }

  async #healed(peer: MemberId, linkOpenMs: number, signal: AbortSignal): Promise<void> {
    for (
      const end = performance.now() + linkOpenMs;
      this.#cut.has(peer);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
    ) {
      signal.throwIfAborted()
      if (performance.now() > end)
        throw new GridError('link-timeout', `no link to ${peer} within ${linkOpenMs} ms: it is cut`)
    }
  }
}

function lossy(link: PeerLink, isCut: () => boolean): PeerLink {
  return {
    peer: link.peer,
    carrier: link.carrier,
    get bufferedBytes() {
      return link.bufferedBytes
    },
    send: (frame) => (isCut() ? Promise.resolve() : link.send(frame)),
    close: (reason) => link.close(reason),
    get onFrame() {
      return link.onFrame
    },
    set onFrame(handler) {
      link.onFrame = handler === undefined ? undefined : (frame) => (isCut() ? undefined : handler(frame))
    },
    get onClose() {
      return link.onClose
    },
    set onClose(handler) {
      link.onClose = handler === undefined ? undefined : (reason) => (isCut() ? undefined : handler(reason))
    },
  }
}

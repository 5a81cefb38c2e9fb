// The bytes that one member sends to others from one of its steps to the next, and the most of any of them.
import type { PeerLink, PeerNetwork, VolunteerHost } from '@starling-grid/volunteer'

export class StepBytes {
  #bytes = 0
  #peak = 0

  /** of the steps so far */
  get peak(): number {
    return this.#peak
  }

  /** The host, with every frame counted and every gradient the end of a step. */
  watch(host: VolunteerHost): VolunteerHost {
    return {
      ...host,
      openPeerNetwork: async (access) => this.#watched(await host.openPeerNetwork(access)),
      createExecutor: async (...asked) => {
        const executor = await host.createExecutor(...asked)
        const compute = executor.gradient.bind(executor)
        return Object.assign(executor, {
          gradient: (...given: Parameters<typeof compute>) => {
            this.#stepped()
            return compute(...given)
          },
        })
      },
    }
  }

  #stepped(): void {
    this.#peak = Math.max(this.#peak, this.#bytes)
    this.#bytes = 0
  }

  #watched(network: PeerNetwork): PeerNetwork {
    const count = (link: PeerLink): PeerLink => {
      const send = link.send.bind(link)
      return Object.assign(link, {
        send: (frame: Uint8Array<ArrayBuffer>) => {
          this.#bytes += frame.byteLength
          return send(frame)
        },
      })
    }
    return {
      dial: async (peer, signal) => count(await network.dial(peer, signal)),
      get onLink() {
        return network.onLink
      },
      set onLink(taken) {
        network.onLink = taken && ((link) => taken(count(link)))
      },
      expect: (members) => network.expect(members),
      reconnect: (access) => network.reconnect(access),
      stop: () => network.stop(),
    }
  }
}

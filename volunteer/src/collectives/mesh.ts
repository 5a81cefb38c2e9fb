// How the ranks of a group reach each other: one interface, and the one implementation over a peer network. The lower
// rank of a pair dials, the higher one waits for it; links open when they are first needed.
import { type Frame, type MemberId, packFrame, unpackFrame } from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork } from '../link/peer-link.ts'

export interface Mesh {
  readonly rank: number
  readonly size: number
  /**
   * The link to another rank, opened if need be; the same one for all calls.
   * @throws GridError 'link-timeout' when it could not be opened, or the signal's reason
   */
  connect(rank: number, signal: AbortSignal): Promise<PeerLink>
  /** From now on others may open links to us; each is also what `connect` resolves to. */
  listen(onLink: (rank: number, link: PeerLink) => void): void
  stop(): void
}

/** Says nothing but "I am here". */
export const SIGN_OF_LIFE: Frame = {
  type: 'heartbeat',
  generation: 0,
  step: 0,
  bucket: 0,
  hop: 0,
  offset: 0,
  payload: new Uint8Array(0),
}

/** @example const group = openCommunicator(networkMesh(network, members, members.indexOf(self))) */
export function networkMesh(network: PeerNetwork, members: readonly MemberId[], rank: number): Mesh {
  return new NetworkMesh(network, members, rank)
}

class NetworkMesh implements Mesh {
  readonly rank: number
  readonly size: number
  readonly #network: PeerNetwork
  readonly #members: readonly MemberId[]
  readonly #links = new Map<number, Promise<PeerLink>>()
  readonly #awaited = new Map<number, (link: PeerLink) => void>()
  #onLink: (rank: number, link: PeerLink) => void = () => {}

  constructor(network: PeerNetwork, members: readonly MemberId[], rank: number) {
    this.#network = network
    this.#members = members
    this.rank = rank
    this.size = members.length
  }

  listen(onLink: (rank: number, link: PeerLink) => void): void {
    this.#onLink = onLink
    this.#network.expect(this.#members)
    this.#network.onLink = (link) => this.#arrived(link)
  }

  connect(rank: number, signal: AbortSignal): Promise<PeerLink> {
    const existing = this.#links.get(rank)
    if (existing !== undefined) return existing
    const link = rank > this.rank ? this.#dial(rank, signal) : this.#arrival(rank, signal)
    this.#links.set(rank, link)
    link.catch(() => this.#links.delete(rank))
    return link
  }

  stop(): void {
    this.#network.onLink = undefined
    this.#network.stop()
  }

  async #dial(rank: number, signal: AbortSignal): Promise<PeerLink> {
    const member = this.#members[rank]
    if (member === undefined) throw new Error(`internal: no rank ${rank}`)
    const link = await this.#network.dial(member, signal)
    await link.send(packFrame(SIGN_OF_LIFE))
    return link
  }

  #arrival(rank: number, signal: AbortSignal): Promise<PeerLink> {
    return new Promise((resolve, reject) => {
      this.#awaited.set(rank, resolve)
      signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    })
  }

  /** The dialler's first frame shows that it did not give this link up meanwhile: only then is it used. */
  #arrived(link: PeerLink): void {
    const rank = this.#members.indexOf(link.peer)
    if (rank < 0 || rank >= this.rank) return link.close('only lower ranks of this group dial here')
    link.onFrame = (bytes) => {
      unpackFrame(bytes) // throws for what is no frame, which closes the link
      link.onFrame = undefined
      this.#confirmed(rank, link)
    }
  }

  #confirmed(rank: number, link: PeerLink): void {
    const resolve = this.#awaited.get(rank)
    if (resolve === undefined && this.#links.has(rank)) return link.close('there is a link already')
    this.#awaited.delete(rank)
    if (resolve === undefined) this.#links.set(rank, Promise.resolve(link))
    else resolve(link)
    this.#onLink(rank, link)
  }
}

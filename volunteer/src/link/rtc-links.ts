// Which WebRTC connections make which links of one volunteer, and how many there may be.
import type { Clock, MemberId } from '@starling-grid/protocol'
import type { ChannelLink } from './channel-link.ts'
import type { Subflow } from './rtc-subflow.ts'
import { linkToJoin, Subflows } from './subflows.ts'

/**
 * Connections beyond the first of each link, of all links together: three for each neighbour in a ring. A member with
 * more neighbours sends so much at once that its own line is what loses packets.
 */
const MOST_FURTHER = 6

export interface RtcLinksParts {
  readonly clock: Clock
  /** Another connection to this member, with this label. @throws GridError, or the network's reason to stop */
  connect(peer: MemberId, label: string): Promise<Subflow>
}

export class RtcLinks {
  readonly #parts: RtcLinksParts
  readonly #links = new Set<Subflows>()

  constructor(parts: RtcLinksParts) {
    this.#parts = parts
  }

  /** Connections beyond the first of each link, with this member; absent: with all. */
  furtherOf(member?: string): number {
    const links = [...this.#links].filter(({ link }) => member === undefined || link.peer === member)
    return links.reduce((sum, { size }) => sum + size - 1, 0)
  }

  /**
   * The link that begins with this connection; undefined: it joined one that is there, or was closed. `offered`: its
   * label in signalling, by which there was room for it.
   */
  linkOf(subflow: Subflow, offered: string): ChannelLink | undefined {
    const label = linkToJoin(subflow.label)
    if (subflow.label === offered && label === undefined) return this.#begin(subflow)
    const { peer } = subflow.link
    const link = [...this.#links].find((one) => one.label === label && one.link.peer === peer)
    if (subflow.label !== offered || this.furtherOf() >= MOST_FURTHER || link?.join(subflow) !== true)
      subflow.link.close('expected a link to join, with room for another connection')
    return undefined
  }

  #begin(subflow: Subflow): ChannelLink {
    const subflows = new Subflows(subflow, {
      clock: this.#parts.clock,
      more: (label) => this.#more(subflows, label),
    })
    this.#links.add(subflows)
    void subflows.link.closed.then(() => this.#links.delete(subflows))
    return subflows.link
  }

  async #more(subflows: Subflows, label: string): Promise<boolean> {
    if (this.furtherOf() >= MOST_FURTHER) return false
    try {
      const opened = await this.#parts.connect(subflows.link.peer, label)
      const joined = this.#links.has(subflows) && subflows.join(opened)
      if (!joined) opened.link.close('its link is closed, or full')
      return joined
    } catch {
      return false
    }
  }
}

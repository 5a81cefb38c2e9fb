// The links that a generation needs, opened when it forms. Trouble is reported when they do not open or break (R17).
// They are tried directly again while the coordinator relays them (R18).
import {
  type BlameReason,
  MAX_RING_MEMBERS,
  type MemberId,
  type ToCoordinator,
  type Clock,
} from '@starling-grid/protocol'
import type { LinkSet, LinkRoute } from '../link/link-set.ts'
import type { MemberEffect, MemberInput } from '../member/member-state.ts'

/** ms before a relayed link is dialled directly: then a partition may be over */
const FIRST_REDIAL_MS = 10_000
/** ms before later tries at most; each doubles the wait */
const LONGEST_REDIAL_MS = 300_000

/** Newcomers that may open links at a time: as many as a ring takes in. */
const MAX_NEWCOMERS = MAX_RING_MEMBERS

/** Members with the same trouble, the first of them to blame; none: the cause is not known. */
export interface Blame {
  readonly blamed: readonly MemberId[]
  readonly why: BlameReason
}

export interface GenerationLinksParts {
  readonly self: MemberId
  readonly links: LinkSet
  readonly clock: Clock
  /** raised when the generation is over */
  readonly signal: AbortSignal
  tell(input: MemberInput): void
  trouble(generation: number, blame: Blame, error: unknown): void
  send(message: ToCoordinator): void
}

type Order = Extract<MemberEffect, { type: 'open-links' }> & {
  readonly fence: number
  /** of the generation */
  readonly members: readonly MemberId[]
}

export class GenerationLinks {
  readonly #parts: GenerationLinksParts
  /** neighbours → when their link is open */
  readonly #opening = new Map<MemberId, Promise<void>>()
  #members: readonly MemberId[] = []
  /** reached through the coordinator (R18), although they are no neighbours */
  #relayedSources: readonly MemberId[] = []
  /** newcomers that are served, the latest ones */
  #newcomers: readonly MemberId[] = []

  constructor(parts: GenerationLinksParts) {
    this.#parts = parts
  }

  /** Members of earlier generations get no new link. */
  open(order: Order): void {
    this.#members = order.members
    this.#relayedSources = order.relayedSources
    this.#expect()
    this.#connect(order)
  }

  #connect(order: Order): void {
    const { links, signal } = this.#parts
    for (const peer of order.neighbours) this.#opening.set(peer, links.ensure(peer, this.#wayTo(peer, order), signal))
    void this.#settle(order)
  }

  /**
   * These fetch from this member, which is in no ring with them (R7). Both ends open a link that the coordinator relays
   * (R18); where it does not open, the one that fetches says so.
   */
  meet(newcomers: readonly MemberId[], relayed: readonly MemberId[]): void {
    const { links, signal } = this.#parts
    for (const peer of relayed) links.ensure(peer, 'relay', signal).catch(() => undefined)
    const others = this.#newcomers.filter((id) => !newcomers.includes(id))
    this.#newcomers = [...others, ...newcomers].slice(-MAX_NEWCOMERS)
    this.#expect()
  }

  #expect(): void {
    const all = [...this.#members, ...this.#newcomers]
    this.#parts.links.expect(all.filter((id) => id !== this.#parts.self))
  }

  /**
   * To neighbours and sources on the way that the coordinator named, to others directly. @throws GridError
   * 'link-timeout'
   */
  reach(member: MemberId, signal: AbortSignal): Promise<void> {
    const opening = this.#opening.get(member)
    if (opening !== undefined) return unlessAborted(opening, signal)
    return this.#parts.links.ensure(member, this.#relayedSources.includes(member) ? 'relay' : 'dial', signal)
  }

  /** Of each pair the member with the lower id dials. */
  #wayTo(peer: MemberId, { relayed }: Order): LinkRoute {
    if (relayed.includes(peer)) return 'relay'
    return this.#parts.self < peer ? 'dial' : 'await'
  }

  /** Waits for all: one ABORT then names every link that did not open. */
  async #settle(order: Order): Promise<void> {
    const { links, tell, trouble, signal } = this.#parts
    const { generation, neighbours, relayed } = order
    const results = await Promise.allSettled(neighbours.map((peer) => this.#opening.get(peer)))
    if (signal.aborted) return
    const failed = neighbours.filter((_, i) => results[i]?.status === 'rejected')
    const error = results.find((result) => result.status === 'rejected')?.reason as unknown
    if (failed.length > 0) return trouble(generation, { blamed: failed, why: 'unopened' }, error)
    if (neighbours.some((peer) => !links.has(peer))) return this.#connect(order) // one closed while another opened
    tell({ type: 'links-open', generation })
    for (const peer of relayed) if (this.#parts.self < peer) void this.#redial(peer, order)
  }

  /** Sent again as long as the generation lasts: the coordinator may ignore it at first. */
  async #redial(peer: MemberId, { fence, generation }: Order): Promise<void> {
    const { signal } = this.#parts
    for (let wait = FIRST_REDIAL_MS; ; wait = Math.min(2 * wait, LONGEST_REDIAL_MS)) {
      await this.#parts.clock.sleep(wait, signal)
      if (signal.aborted) return
      const works = await this.#parts.links.redial(peer, signal).then(
        () => true,
        () => false,
      )
      if (works && !signal.aborted) this.#parts.send({ type: 'link-restored', fence, generation, peer })
    }
  }
}

/** The same outcome, or the signal's reason when that comes first. */
function unlessAborted(opening: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    opening.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
    if (signal.aborted) abort()
  })
}

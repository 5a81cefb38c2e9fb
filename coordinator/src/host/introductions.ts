// The members that each member may open links to: those that the coordinator itself named to one of the two, neighbours
// and sources of state.
import type { MemberId, ToVolunteer } from '@starling-grid/protocol'
import { areLinked } from '../run/links/generation-links.ts'

/**
 * ms that those of the generation before are let through: candidates are on their way when it ends, or when a member
 * goes
 */
const LINGER_MS = 60_000

interface NamedMembers {
  present: ReadonlySet<MemberId>
  before: ReadonlySet<MemberId>
  /** ms: when `before` was replaced */
  changedAt: number
}

export class Introductions {
  readonly #named = new Map<MemberId, NamedMembers>()

  /** What a member is sent may name others to it. `at`: ms */
  told(to: MemberId, message: ToVolunteer, at: number): void {
    if (message.type === 'follow') return this.#add(to, message.sources, at)
    if (message.type === 'prove') return this.#add(to, [...(this.#named.get(to)?.present ?? []), ...message.peers], at)
    if (message.type === 'prefetch') return this.#replace(to, message.sources, at)
    if (message.type !== 'form') return
    const { members, sources, exchange = { type: 'ring' } } = message
    this.#replace(to, [...members.filter((other) => areLinked({ members, exchange }, to, other)), ...sources], at)
  }

  left(member: MemberId, at: number): void {
    if (this.#named.has(member)) this.#replace(member, [], at)
    for (const [id, { present, changedAt }] of this.#named)
      if (present.size === 0 && at - changedAt > LINGER_MS) this.#named.delete(id)
  }

  mayTalk(a: MemberId, b: MemberId, at: number): boolean {
    return this.#names(a, b, at) || this.#names(b, a, at)
  }

  #names(a: MemberId, b: MemberId, at: number): boolean {
    const named = this.#named.get(a)
    return named !== undefined && (named.present.has(b) || (at - named.changedAt < LINGER_MS && named.before.has(b)))
  }

  #add(to: MemberId, others: readonly MemberId[], at: number): void {
    const named = this.#named.get(to)
    if (named === undefined || others.some((id) => !named.present.has(id))) this.#replace(to, others, at)
  }

  #replace(to: MemberId, others: readonly MemberId[], at: number): void {
    const before = this.#named.get(to)?.present ?? new Set()
    this.#named.set(to, { present: new Set(others.filter((id) => id !== to)), before, changedAt: at })
  }
}

// The members that each member may open links to: those that the coordinator itself named to one of the two, neighbours
// and sources of state.
import { MAX_BASE_SOURCES, type MemberId, type ToVolunteer, turnedBy } from '@starling-grid/protocol'
import { areLinked } from '../run/links/generation-links.ts'

/**
 * ms that those of the generation before are let through: candidates are on their way when it ends, or when a member
 * goes
 */
const LINGER_MS = 60_000

/** ms in which a newcomer fetches the base of a job from members: as long as it may prepare */
const SEEKING_MS = 300_000
/** Newcomers that may do so at once; the oldest give way. */
const MAX_SEEKERS = 256

interface NamedMembers {
  present: ReadonlySet<MemberId>
  before: ReadonlySet<MemberId>
  /** ms: when `before` was replaced */
  changedAt: number
}

export class Introductions {
  readonly #named = new Map<MemberId, NamedMembers>()
  /** newcomers that fetch a base, the oldest first */
  readonly #seekers = new Map<MemberId, { readonly sources: ReadonlySet<MemberId>; readonly at: number }>()

  /** What a member is sent may name others to it. `at`: ms */
  told(to: MemberId, message: ToVolunteer, at: number): void {
    if (message.type === 'follow') return this.#add(to, message.sources, at)
    if (message.type === 'grant') return this.#begins(to, message.sources, at)
    if (message.type === 'prove') return this.#add(to, [...(this.#named.get(to)?.present ?? []), ...message.peers], at)
    if (message.type === 'prefetch') return this.#replace(to, message.sources, at)
    if (message.type !== 'form') return
    const { members, sources, exchange = { type: 'ring' } } = message
    this.#replace(to, [...members.filter((other) => areLinked({ members, exchange }, to, other)), ...sources], at)
  }

  /** A newcomer may open links to these members, which have the base. One that asks again keeps its place. */
  sought(newcomer: MemberId, sources: readonly MemberId[], at: number): void {
    for (const [id, seeker] of this.#seekers) if (at - seeker.at >= SEEKING_MS) this.#seekers.delete(id)
    this.#seekers.set(newcomer, { sources: new Set(sources), at })
    for (const oldest of this.#seekers.keys()) if (this.#seekers.size > MAX_SEEKERS) this.#seekers.delete(oldest)
  }

  /** Newcomers that began to fetch the base before this one: none of them waits for what only it has. */
  seekersBefore(newcomer: MemberId, at: number): MemberId[] {
    const all = [...this.#seekers.keys()]
    const place = all.indexOf(newcomer)
    return (place < 0 ? all : all.slice(0, place)).filter((id) => this.#isSeeking(id, at))
  }

  left(member: MemberId, at: number): void {
    if (this.#named.has(member)) this.#replace(member, [], at)
    for (const [id, { present, changedAt }] of this.#named)
      if (present.size === 0 && at - changedAt > LINGER_MS) this.#named.delete(id)
  }

  mayTalk(a: MemberId, b: MemberId, at: number): boolean {
    return this.#names(a, b, at) || this.#names(b, a, at) || this.#seeks(a, b, at) || this.#seeks(b, a, at)
  }

  #seeks(a: MemberId, b: MemberId, at: number): boolean {
    return this.#isSeeking(a, at) && this.#seekers.get(a)?.sources.has(b) === true
  }

  #isSeeking(id: MemberId, at: number): boolean {
    const seeker = this.#seekers.get(id)
    return seeker !== undefined && at - seeker.at < SEEKING_MS
  }

  #names(a: MemberId, b: MemberId, at: number): boolean {
    const named = this.#named.get(a)
    return named !== undefined && (named.present.has(b) || (at - named.changedAt < LINGER_MS && named.before.has(b)))
  }

  /** Of a round: links to the sources of the round before stay, where they are asked again. */
  #begins(to: MemberId, sources: readonly MemberId[] = [], at: number): void {
    if (sources.length > 0) this.#add(to, sources, at)
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

/** Who may have the base of a job. */
export interface BaseHolders {
  /** they said that they are ready */
  readonly members: readonly { readonly id: MemberId; readonly relaysOnly?: boolean }[]
  /** newcomers that fetch it themselves: they give what is there */
  readonly fetching: readonly MemberId[]
}

/**
 * Members that a newcomer is to fetch a base from: one that has all of it where there is one, and others. None of those
 * whose links all go through the coordinator.
 */
export function baseSources(newcomer: MemberId, { members, fetching }: BaseHolders): readonly MemberId[] {
  const able = members.filter(({ id, relaysOnly }) => id !== newcomer && relaysOnly !== true).map(({ id }) => id)
  const whole = turnedBy(newcomer, able).slice(0, 1)
  const others = turnedBy(newcomer, [...new Set([...able, ...fetching])])
  return [...new Set([...whole, ...others])].slice(0, MAX_BASE_SOURCES)
}

// Which links and which members are bad, from what ABORTs say of them (R17, R18). One bad pair is a bad link, several
// pairs of one member are a bad member. Pure; independent of sockets and of ballots.
import type { LinkTrouble, MemberId } from '@starling-grid/protocol'

export interface LinkFailure {
  readonly pair: readonly [MemberId, MemberId]
  readonly why: LinkTrouble | 'stalled' | 'refused'
  /** the digests of others show it: it is no member's word alone */
  readonly proven?: boolean
  /** its frames went through the coordinator already */
  readonly relayed: boolean
  readonly generation: number
  /** ms */
  readonly at: number
  /** the direct link opened again afterwards: it weighs no more, and is remembered in case this happens often */
  readonly cured?: boolean
}

/** good: direct; bad: relay it, or keep the two apart; dead: not even the relay helped */
export type LinkVerdict = 'good' | 'bad' | 'dead'

export interface Hindsight {
  readonly now: number
  /** ms after which a failure counts half */
  readonly halfLifeMs: number
}

/**
 * A link that does not open was dialled several times within LINK_OPEN_MS. One that stalled was asked about twice, and
 * what was refused may come again. One that breaks may open again at once.
 */
const WEIGHTS: Readonly<Record<LinkFailure['why'], number>> = {
  unopened: 1,
  stalled: 1,
  refused: 1,
  closed: 0.3,
  silent: 0.3,
}
/** Weight from which a link is bad: one that does not open at once, one that breaks the second time. */
const BAD_FROM = 0.5
/** Half-lives after which a failure is forgotten: it weighs less than a thirtieth. */
const KEPT_HALF_LIVES = 5
/** Failures that are kept: some for every link of the largest ring. */
const MOST_FAILURES = 256
/**
 * ms after its last failure from which on a link that opens again is believed; twice as long with every failure before
 * it
 */
const RETURN_MS = 10_000
/** ms within which links that broke with several partners speak against the member (R17) */
const BREAKS_MS = 60_000
/**
 * Partners with which digests show a member's link to be bad, in as many generations: one of them may be the culprit
 * himself.
 */
const SEVERAL_PROVEN = 2
/** Partners that say so of it; all others where there are fewer, but never one alone. */
const SEVERAL_ACCUSERS = 3
/** Partners that a member cannot reach: two neighbours may be unlucky, and an order without them was tried. */
const SEVERAL_UNREACHED = 3
/**
 * Smallest ring in which members that cannot reach others are left out: in smaller ones all links can be relayed (R18).
 */
const LEAST_ORDERED = 4

/** Remembers a failure, once for each generation: both ends may report it. */
export function noteFailure(
  failures: readonly LinkFailure[],
  failure: LinkFailure,
  { now, halfLifeMs }: Hindsight,
): LinkFailure[] {
  const kept = failures.filter(({ at }) => now - at < KEPT_HALF_LIVES * halfLifeMs).slice(-(MOST_FAILURES - 1))
  const existing = kept.some((other) => other.generation === failure.generation && isPair(other, ...failure.pair))
  return existing ? kept : [...kept, failure]
}

/** A member that went away says nothing of those that it left, and comes back as a new one. */
export function forgetMember(failures: readonly LinkFailure[], id: MemberId): LinkFailure[] {
  return failures.filter(({ pair }) => !pair.includes(id))
}

/** The two reach each other again. Undefined: too soon after their link failed, or too often. */
export function cure(
  failures: readonly LinkFailure[],
  a: MemberId,
  b: MemberId,
  now: number,
): LinkFailure[] | undefined {
  const direct = failures.filter((failure) => !failure.relayed && isPair(failure, a, b))
  const last = Math.max(...direct.map(({ at }) => at))
  if (direct.length > 0 && now - last < RETURN_MS * 2 ** (direct.length - 1)) return undefined
  return failures.map((failure) => (direct.includes(failure) ? { ...failure, cured: true } : failure))
}

/** One cell of the matrix. */
export function linkVerdict(
  failures: readonly LinkFailure[],
  a: MemberId,
  b: MemberId,
  hindsight: Hindsight,
): LinkVerdict {
  const weight = { direct: 0, relayed: 0 }
  for (const failure of failures) {
    if (failure.cured === true || !isPair(failure, a, b)) continue
    weight[failure.relayed && failure.why !== 'refused' ? 'relayed' : 'direct'] +=
      WEIGHTS[failure.why] * 2 ** ((failure.at - hindsight.now) / hindsight.halfLifeMs)
  }
  if (weight.relayed >= BAD_FROM) return 'dead'
  return weight.direct >= BAD_FROM ? 'bad' : 'good'
}

/**
 * member → its network, in words that only have to be equal or not; undefined: not known, so no other member
 * shares it
 */
export type NetworkOf = (id: MemberId) => string | undefined

/** The member with several bad pairs among these, the worst first, of equals the one who came last; and why. */
export function badMember(
  failures: readonly LinkFailure[],
  members: readonly MemberId[],
  { networkOf = () => undefined, ...hindsight }: Hindsight & { readonly networkOf?: NetworkOf },
): { readonly id: MemberId; readonly why: string } | undefined {
  let worst: { readonly id: MemberId; readonly why: string; readonly pairs: number } | undefined
  for (const id of members) {
    const others = members.filter((other) => other !== id)
    const broke = brokenPartners(failures, id, { others, now: hindsight.now, networkOf })
    const cannotReach = others.filter((other) => linkVerdict(failures, id, other, hindsight) !== 'good')
    const unreached = members.length < LEAST_ORDERED ? 0 : voices(id, cannotReach, networkOf)
    const pairs = Math.max(broke, unreached < SEVERAL_UNREACHED ? 0 : unreached)
    const why = broke > 0 ? `its links with ${broke} others broke` : `it cannot link to ${unreached} others`
    if (pairs > 0 && pairs >= (worst?.pairs ?? 0)) worst = { id, why, pairs }
  }
  return worst
}

/** Partners with which a link of this member broke lately; 0 when it was one bad moment, or too few say so. */
function brokenPartners(
  failures: readonly LinkFailure[],
  id: MemberId,
  {
    others,
    now,
    networkOf,
  }: { readonly others: readonly MemberId[]; readonly now: number; readonly networkOf: NetworkOf },
): number {
  const breaks = failures.filter(
    ({ why, at, pair, cured }) =>
      why !== 'unopened' &&
      cured !== true &&
      now - at < BREAKS_MS &&
      pair.includes(id) &&
      pair.some((end) => others.includes(end)),
  )
  const partnersIn = (some: readonly LinkFailure[]): MemberId[] => [
    ...new Set(some.flatMap(({ pair }) => pair.filter((end) => end !== id))),
  ]
  const partners = partnersIn(breaks)
  const accusers = voices(id, partners, networkOf)
  const proven = partnersIn(breaks.filter((failure) => failure.proven === true)).length
  const isBelieved = proven >= SEVERAL_PROVEN || accusers >= Math.max(2, Math.min(SEVERAL_ACCUSERS, others.length))
  return isBelieved && new Set(breaks.map(({ generation }) => generation)).size > 1 ? partners.length : 0
}

/** How many of these accusers count: those of one network are one voice, unless the accused is of that network, too. */
function voices(accused: MemberId, accusers: readonly MemberId[], networkOf: NetworkOf): number {
  const own = networkOf(accused)
  return new Set(accusers.map((id) => (networkOf(id) === own ? id : (networkOf(id) ?? id)))).size
}

function isPair({ pair }: LinkFailure, a: MemberId, b: MemberId): boolean {
  return (pair[0] === a && pair[1] === b) || (pair[0] === b && pair[1] === a)
}

// Links in the reducer: what an ABORT says of them (R17), and how the next generation goes around the bad ones or
// relays them (R18).
import {
  type Exchange,
  EXCHANGES,
  exchangesWith,
  isLinkTrouble,
  type LinkTrouble,
  type MemberId,
  type MessageFrom,
} from '@starling-grid/protocol'
import { exchangeOf, linkBetween } from '../policy/exchange-now.ts'
import { exclude } from '../ring/membership.ts'
import type { FormPhase, GenerationMembers, Member, RankPair, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { badMember, cure, type Hindsight, type LinkVerdict, noteFailure } from './link-health.ts'
import { type LeftOut, linkAll, orderRing } from './ring-order.ts'
import { isRelayedSource, linksToRelay, type SourceLink } from './source-links.ts'

/** A generation, and while it forms who serves its target. */
type Accused = GenerationMembers & Partial<Pick<FormPhase, 'sources' | 'relayedSources'>>

/** Only what this member can know: of links to its own neighbours and to sources, and of who sent to it. */
export function accuse(
  transition: Transition,
  ring: Accused,
  by: MemberId,
  { blamed, why, links }: Pick<MessageFrom<'abort'>, 'blamed' | 'why' | 'links'>,
): void {
  const { state, now } = transition
  const { generation, members } = ring
  const isRefusal = why === 'refused' && blamed !== null && members.includes(blamed)
  if (!isRefusal && !isLinkTrouble(why)) return
  for (const peer of new Set(isRefusal ? [blamed] : links)) {
    if (!mayKnow(ring, by, peer, isRefusal) || !state.members.has(peer)) continue
    const failure = {
      pair: [by, peer] as const,
      why: isRefusal ? ('refused' as const) : (why as LinkTrouble),
      relayed: isRelayed(ring, by, peer) || isRelayedSource(ring.relayedSources, by, peer),
      generation,
      at: now,
    }
    state.health.linkFailures = noteFailure(state.health.linkFailures, failure, hindsightOf(transition))
  }
}

function mayKnow(ring: Accused, by: MemberId, peer: MemberId, isRefusal: boolean): boolean {
  if (by === peer) return false
  return isRefusal || areLinked(ring, by, peer) || ring.sources?.includes(peer) === true
}

interface Arrangement extends Pick<GenerationMembers, 'relayed' | 'exchange'> {
  readonly members: readonly Member[]
}

/**
 * The next generation of those that may be in it now, the longest here first; a member that spoils it is left out for
 * a while.
 */
export function arrangeRing(transition: Transition, candidatesNow: () => readonly Member[]): Arrangement {
  const candidates = candidatesNow()
  const willing = withoutBadMembers(
    transition,
    candidates.map(({ id }) => id),
  )
  const judge = (a: MemberId, b: MemberId): LinkVerdict => linkBetween(transition, a, b)
  const exchange = exchangeOf(transition, willing)
  const order = ORDERS[exchange.type](willing, judge, [...transition.state.members.keys()])
  for (const { id, over } of order.evicted)
    exclude(transition, id, 'a link that the coordinator relays does not work either', over)
  if (order.evicted.map((out) => letInAgain(transition, out)).includes(true))
    return arrangeRing(transition, candidatesNow)
  const members = order.members.flatMap((id) => candidates.find((member) => member.id === id) ?? [])
  tell(transition, { members, relayed: order.relayed, exchange })
  return { members, relayed: order.relayed, exchange }
}

/** Links to the sources of a ballot's target that the coordinator relays, beside those of the generation (R18). */
export function relayedSources(
  transition: Transition,
  { members, exchange, sources }: Pick<FormPhase, 'members' | 'exchange' | 'sources'>,
): SourceLink[] {
  return linksToRelay({
    members,
    sources: sources.filter((id) => transition.state.members.has(id)),
    areNeighbours: (a, b) => areLinked({ members, exchange }, a, b),
    judge: (a, b) => linkBetween(transition, a, b),
  })
}

/**
 * R18: of two members that nothing links, either may be the cause. Where the one that stayed is left out over another,
 * the member that was left out over it comes back, unless a third shows that its own links are dead as well.
 */
function letInAgain(transition: Transition, { id: cause, over: witness }: LeftOut): boolean {
  const { state, now } = transition
  const isCleared = ({ id, excludedUntil, excludedOver }: Member): boolean =>
    excludedOver === cause &&
    id !== witness &&
    excludedUntil > now &&
    ![...state.members.keys()].some((other) => other !== cause && linkBetween(transition, id, other) === 'dead')
  const cleared = [...state.members.values()].filter(isCleared)
  for (const member of cleared) {
    member.excludedUntil = now
    transition.note('member', `${member.name} may be in the ring again: it was not the cause`)
  }
  return cleared.length > 0
}

/** The order of the members, and the pairs to relay, of each exchange. */
const ORDERS = { ring: ringOrder, direct: linkAll } satisfies Record<Exchange, unknown>

function ringOrder(
  willing: readonly MemberId[],
  judge: (a: MemberId, b: MemberId) => LinkVerdict,
  here: readonly MemberId[],
): ReturnType<typeof linkAll> {
  const { members, relayed, evicted } = orderRing(willing, judge, here)
  const pairs = relayed.map((rank) => [rank, (rank + 1) % members.length].sort((a, b) => a - b) as [number, number])
  return {
    members,
    relayed: pairs.filter(([a, b], i) => pairs.findIndex(([c, d]) => a === c && b === d) === i),
    evicted,
  }
}

/**
 * R17: one bad pair is a bad link; several pairs of one member are a bad member. At least one member always remains.
 */
function withoutBadMembers(transition: Transition, ids: readonly MemberId[]): readonly MemberId[] {
  const { health } = transition.state
  let left = ids
  while (left.length > 1) {
    const bad = badMember(health.linkFailures, left, {
      ...hindsightOf(transition),
      networkOf: (id) => transition.state.members.get(id)?.network,
    })
    if (bad === undefined) break
    exclude(transition, bad.id, bad.why)
    left = left.filter((id) => id !== bad.id)
  }
  return left
}

function tell(transition: Transition, { members, relayed, exchange }: Arrangement): void {
  const { health } = transition.state
  if (members.length > 1 && health.exchange !== exchange.type)
    transition.note('mode', `gradients travel ${EXCHANGES[exchange.type].way}: ${exchange.reason}`)
  if (members.length > 1) health.exchange = exchange.type
  for (const pair of relayed)
    transition.note(
      'generation',
      `${pair
        .map((rank) => members[rank]?.name ?? '')
        .sort()
        .join(' and ')} cannot link to each other: the coordinator relays their frames`,
    )
}

/** Whether the two are given their direct link again: a link that keeps breaking has to wait longer each time. */
export function believesIn(transition: Transition, a: MemberId, b: MemberId): boolean {
  const cured = cure(transition.state.health.linkFailures, a, b, transition.now)
  if (cured !== undefined) transition.state.health.linkFailures = cured
  return cured !== undefined
}

export function isRelayed(
  { members, relayed }: Pick<GenerationMembers, 'members' | 'relayed'>,
  a: MemberId,
  b: MemberId,
): boolean {
  return a !== b && relayed.some((pair: RankPair) => pair.every((rank) => members[rank] === a || members[rank] === b))
}

/** Whether frames of a step go from one of these two to the other. */
export function areLinked(
  {
    members,
    exchange,
  }: { readonly members: readonly MemberId[]; readonly exchange: Pick<GenerationMembers['exchange'], 'type'> },
  a: MemberId,
  b: MemberId,
): boolean {
  const [i, j] = [members.indexOf(a), members.indexOf(b)]
  if (i < 0 || j < 0 || i === j) return false
  return exchangesWith(exchange.type, i, j, members.length)
}

/**
 * May the coordinator carry frames between these two now? While a ballot is open, those of the generation before may go
 * on.
 */
export function mayRelay({ phase }: RunState, a: MemberId, b: MemberId): boolean {
  if (phase.type === 'form') return isRelayed(phase, a, b) || isRelayedSource(phase.relayedSources, a, b)
  if (phase.type === 'ring') return isRelayed(phase, a, b)
  return phase.type === 'freeze' && phase.before !== undefined && isRelayed(phase.before, a, b)
}

function hindsightOf({ state, now }: Transition): Hindsight {
  return { now, halfLifeMs: state.config.timing.linkMemoryMs }
}

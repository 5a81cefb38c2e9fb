// Links in the reducer: what an ABORT says of them (R17), how the next ring goes around the bad ones, or as a butterfly
// with relays in their place (R18).
import { isLinkTrouble, type LinkTrouble, type MemberId, type MessageFrom } from '@starling-grid/protocol'
import { exchangeOf, linkBetween } from './exchange-now.ts'
import { badMember, cure, type Hindsight, type LinkVerdict, noteFailure } from './link-health.ts'
import { exclude } from './membership.ts'
import { linkAll, orderRing } from './ring-order.ts'
import type { Generation, Member, PlacePair, RunState } from './state.ts'
import type { Turn } from './turn.ts'

/** Only what this member can know: of links to its own neighbours, and of who sent to it. */
export function accuse(
  turn: Turn,
  generation: Generation,
  by: MemberId,
  { blamed, why, links }: Pick<MessageFrom<'abort'>, 'blamed' | 'why' | 'links'>,
): void {
  const { state, now } = turn
  const { gen, members } = generation
  const isRefusal = why === 'refused' && blamed !== null && members.includes(blamed)
  if (!isRefusal && !isLinkTrouble(why)) return
  for (const peer of new Set(isRefusal ? [blamed] : links)) {
    const mayKnow = areLinked(generation, by, peer) || (isRefusal && peer !== by)
    if (!mayKnow || !state.members.has(peer)) continue
    const failure = {
      pair: [by, peer] as const,
      why: isRefusal ? ('refused' as const) : (why as LinkTrouble),
      relayed: isRelayed(generation, by, peer),
      gen,
      at: now,
    }
    state.health.linkFailures = noteFailure(state.health.linkFailures, failure, hindsightOf(turn))
  }
}

interface Arrangement extends Pick<Generation, 'relayed' | 'exchange'> {
  readonly members: readonly Member[]
}

/** The next generation of these candidates, the longest here first; a member that spoils it is left out for a while. */
export function arrangeRing(turn: Turn, candidates: readonly Member[]): Arrangement {
  const willing = withoutBadMembers(
    turn,
    candidates.map(({ id }) => id),
  )
  const judge = (a: MemberId, b: MemberId): LinkVerdict => linkBetween(turn, a, b)
  const exchange = exchangeOf(turn, willing)
  const order = exchange.type === 'butterfly' ? linkAll(willing, judge) : ringOrder(willing, judge)
  for (const id of order.evicted) exclude(turn, id, 'a link that the coordinator relays does not work either')
  const members = order.members.flatMap((id) => candidates.find((member) => member.id === id) ?? [])
  tell(turn, { members, relayed: order.relayed, exchange })
  return { members, relayed: order.relayed, exchange }
}

function ringOrder(
  willing: readonly MemberId[],
  judge: (a: MemberId, b: MemberId) => LinkVerdict,
): ReturnType<typeof linkAll> {
  const { members, relayed, evicted } = orderRing(willing, judge)
  const pairs = relayed.map((place) => [place, (place + 1) % members.length].sort((a, b) => a - b) as [number, number])
  return {
    members,
    relayed: pairs.filter(([a, b], i) => pairs.findIndex(([c, d]) => a === c && b === d) === i),
    evicted,
  }
}

/**
 * R17: one bad pair is a bad link; several pairs of one member are a bad member. At least one member always remains.
 */
function withoutBadMembers(turn: Turn, ids: readonly MemberId[]): readonly MemberId[] {
  const { health, config } = turn.state
  let left = ids
  while (left.length > 1 && !config.off.has('R17')) {
    const bad = badMember(health.linkFailures, left, {
      ...hindsightOf(turn),
      networkOf: (id) => turn.state.members.get(id)?.network,
    })
    if (bad === undefined) break
    exclude(turn, bad.id, bad.why)
    left = left.filter((id) => id !== bad.id)
  }
  return left
}

function tell(turn: Turn, { members, relayed, exchange }: Arrangement): void {
  const { health } = turn.state
  if (members.length > 1 && health.exchange !== exchange.type)
    turn.note(
      'mode',
      `gradients travel ${exchange.type === 'butterfly' ? 'from each member to each (butterfly)' : 'around the ring'}: ${exchange.reason}`,
    )
  if (members.length > 1) health.exchange = exchange.type
  for (const pair of relayed)
    turn.note(
      'generation',
      `${pair
        .map((place) => members[place]?.name ?? '')
        .sort()
        .join(' and ')} cannot link to each other: the coordinator relays their frames`,
    )
}

/** Whether the two are given their direct link again: a link that keeps breaking has to wait longer each time. */
export function believesIn(turn: Turn, a: MemberId, b: MemberId): boolean {
  const cured = cure(turn.state.health.linkFailures, a, b, turn.now)
  if (cured !== undefined) turn.state.health.linkFailures = cured
  return cured !== undefined
}

export function isRelayed(
  { members, relayed }: Pick<Generation, 'members' | 'relayed'>,
  a: MemberId,
  b: MemberId,
): boolean {
  return (
    a !== b && relayed.some((pair: PlacePair) => pair.every((place) => members[place] === a || members[place] === b))
  )
}

/** Whether frames of a step go from one of these two to the other. */
export function areLinked(
  {
    members,
    exchange,
  }: { readonly members: readonly MemberId[]; readonly exchange: Pick<Generation['exchange'], 'type'> },
  a: MemberId,
  b: MemberId,
): boolean {
  const [i, j] = [members.indexOf(a), members.indexOf(b)]
  if (i < 0 || j < 0 || i === j) return false
  return exchange.type === 'butterfly' || (i + 1) % members.length === j || (j + 1) % members.length === i
}

/**
 * May the coordinator carry frames between these two now? While a ballot is open, those of the generation before may go
 * on.
 */
export function mayRelay({ phase }: RunState, a: MemberId, b: MemberId): boolean {
  if (phase.type === 'form' || phase.type === 'ring') return isRelayed(phase, a, b)
  return phase.type === 'freeze' && phase.before !== undefined && isRelayed(phase.before, a, b)
}

function hindsightOf({ state, now }: Turn): Hindsight {
  return { now, halfLifeMs: state.config.timing.linkMemoryMs }
}

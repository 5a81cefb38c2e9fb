// Links in the reducer: what an ABORT says of them (R17), and how the next ring goes around the bad ones (R18).
import { isLinkTrouble, type MemberId, type MessageFrom } from '@starling-grid/protocol'
import { badMember, cure, type Hindsight, linkVerdict, noteFailure } from './link-health.ts'
import { blame, exclude } from './membership.ts'
import { orderRing } from './ring-order.ts'
import type { Generation, Member, RunState } from './state.ts'
import type { Turn } from './turn.ts'

/** Only what this member can know: of links to its own neighbours, and of who sent to it. */
export function accuse(turn: Turn, generation: Generation, by: MemberId, { blamed, why, links }: Pick<MessageFrom<'abort'>, 'blamed' | 'why' | 'links'>): void {
  const { state, now } = turn
  const { gen, members } = generation
  if (why === 'refused' && blamed !== null && blamed !== by && members.includes(blamed)) return blame(turn, blamed, by)
  if (!isLinkTrouble(why)) return
  for (const peer of new Set(links)) {
    if (linkPlace(members, by, peer) === undefined || !state.members.has(peer)) continue
    const failure = { pair: [by, peer] as const, why, relayed: isRelayed(generation, by, peer), gen, at: now }
    state.health.linkFailures = noteFailure(state.health.linkFailures, failure, hindsightOf(turn))
  }
}

/** The next ring of these candidates, the longest here first; whoever spoils it is left out for a while. */
export function arrangeRing(turn: Turn, candidates: readonly Member[]): { readonly members: readonly Member[]; readonly relayed: readonly number[] } {
  const { health } = turn.state
  const hindsight = hindsightOf(turn)
  const willing = withoutBadMembers(turn, candidates.map(({ id }) => id))
  const order = orderRing(willing, (a, b) => linkVerdict(health.linkFailures, a, b, hindsight))
  for (const id of order.evicted) exclude(turn, id, 'a link that the coordinator relays does not work either')
  const members = order.members.flatMap((id) => candidates.find((member) => member.id === id) ?? [])
  tell(turn, members, order.relayed)
  return { members, relayed: order.relayed }
}

/** R17: one bad pair is a bad link; several pairs of one member are a bad member. Somebody is always left. */
function withoutBadMembers(turn: Turn, ids: readonly MemberId[]): readonly MemberId[] {
  const { health, config } = turn.state
  let left = ids
  while (left.length > 1 && !config.off.has('R17')) {
    const bad = badMember(health.linkFailures, left, hindsightOf(turn))
    if (bad === undefined) break
    exclude(turn, bad.id, bad.why)
    left = left.filter((id) => id !== bad.id)
  }
  return left
}

function tell(turn: Turn, members: readonly Member[], relayed: readonly number[]): void {
  const pairs = relayed.map((place) => [members[place]?.name ?? '', members[(place + 1) % members.length]?.name ?? ''].sort().join(' and '))
  for (const pair of new Set(pairs)) turn.note('generation', `${pair} cannot link to each other: the coordinator relays their frames`)
}

/** Whether the two are given their direct link again: a link that keeps breaking has to wait longer each time. */
export function believesIn(turn: Turn, a: MemberId, b: MemberId): boolean {
  const cured = cure(turn.state.health.linkFailures, a, b, turn.now)
  if (cured !== undefined) turn.state.health.linkFailures = cured
  return cured !== undefined
}

export function isRelayed({ members, relayed }: Pick<Generation, 'members' | 'relayed'>, a: MemberId, b: MemberId): boolean {
  const place = linkPlace(members, a, b)
  return place !== undefined && relayed.includes(place)
}

/** The place whose link to the next member these two are the ends of. */
function linkPlace(members: readonly MemberId[], a: MemberId, b: MemberId): number | undefined {
  const place = members.findIndex((id, i) => id === a && members[(i + 1) % members.length] === b)
  const other = members.findIndex((id, i) => id === b && members[(i + 1) % members.length] === a)
  if (a === b || (place < 0 && other < 0)) return undefined
  return place < 0 ? other : place
}

/** May the coordinator carry frames between these two now? While a ballot is open, those of the generation before may go on. */
export function mayRelay({ phase }: RunState, a: MemberId, b: MemberId): boolean {
  if (phase.type === 'form' || phase.type === 'ring') return isRelayed(phase, a, b)
  return phase.type === 'freeze' && phase.before !== undefined && isRelayed(phase.before, a, b)
}

function hindsightOf({ state, now }: Turn): Hindsight {
  return { now, halfLifeMs: state.config.timing.linkMemoryMs }
}

// The order of a ring around its bad links, and the bad links of a direct exchange, which needs all of them (R18).
// Pure: members and verdicts in, an order out.
import type { MemberId } from '@starling-grid/protocol'
import type { LinkVerdict } from './link-health.ts'

export interface RingOrder {
  readonly members: readonly MemberId[]
  /** ranks whose link to the next member goes through the coordinator */
  readonly relayed: readonly number[]
  readonly evicted: readonly LeftOut[]
}

/** Not even the relay links this member to the one that stays. */
export interface LeftOut {
  readonly id: MemberId
  readonly over: MemberId
}

type Judge = (a: MemberId, b: MemberId) => LinkVerdict

/** What a neighbourhood costs: a dead link is avoided at the price of any number of relays. */
const COSTS: Readonly<Record<LinkVerdict, number>> = { good: 0, bad: 1, dead: 1000 }

/**
 * R18. Up to three members every two are neighbours: bad links are relayed at once. From four on: an order that keeps
 * bad pairs apart; where there is none the link is relayed. Where that failed, too, one of the two is left out.
 * `members`: the longest here first. They keep their places as far as possible, since open links are worth something.
 * `here`: also those that are out of the ring, whose links tell as much.
 */
export function orderRing(members: readonly MemberId[], judge: Judge, here = members): RingOrder {
  const order = untangled(members, (a, b) => COSTS[judge(a, b)])
  const dead = ranks(order, judge, 'dead')[0]
  if (dead === undefined) return { members: order, relayed: ranks(order, judge, 'bad'), evicted: [] }
  const out = worseOf([at(order, dead), at(order, dead + 1)], { members, here, judge })
  const rest = orderRing(
    members.filter((id) => id !== out.id),
    judge,
    here,
  )
  return { ...rest, evicted: [out, ...rest.evicted] }
}

/**
 * Turns stretches of the ring around as long as that makes it cheaper. It ends without any bad link where every two
 * members that must not be neighbours have together at least N others that they may have. Source: Palmer's proof of
 * Ore's theorem ("The hidden algorithm of Ore's theorem on Hamiltonian cycles", Computers Math. Applic. 34 (1997)).
 */
function untangled(members: readonly MemberId[], cost: (a: MemberId, b: MemberId) => number): MemberId[] {
  let order = [...members]
  for (let better = cheaperTurn(order, cost); better !== undefined; better = cheaperTurn(order, cost)) order = better
  return order
}

/** The first turn of order[from … to] that saves something: only the links at its ends change. */
function cheaperTurn(order: readonly MemberId[], cost: (a: MemberId, b: MemberId) => number): MemberId[] | undefined {
  for (let from = 1; from < order.length; from++)
    for (let to = from + 1; to < order.length; to++) {
      const [before, first, last, after] = [at(order, from - 1), at(order, from), at(order, to), at(order, to + 1)]
      if (cost(before, last) + cost(first, after) < cost(before, first) + cost(last, after))
        return [...order.slice(0, from), ...order.slice(from, to + 1).reverse(), ...order.slice(to + 1)]
    }
  return undefined
}

/** Places whose link to the next is of this kind; a ring of two has one link, seen from both. */
function ranks(order: readonly MemberId[], judge: Judge, kind: LinkVerdict): number[] {
  return order.length < 2 ? [] : order.flatMap((id, i) => (judge(id, at(order, i + 1)) === kind ? [i] : []))
}

export interface AllLinks {
  readonly members: readonly MemberId[]
  /** pairs of places whose link goes through the coordinator, the lower one first */
  readonly relayed: readonly (readonly [number, number])[]
  readonly evicted: readonly LeftOut[]
}

/**
 * R18 where every two members are linked: bad links are relayed; where that failed, too, one of the two is left out.
 */
export function linkAll(members: readonly MemberId[], judge: Judge, here = members): AllLinks {
  const pairs = members.flatMap((_, a) =>
    members.slice(a + 1).map((_other, i): readonly [number, number] => [a, a + 1 + i]),
  )
  const verdictOf = ([a, b]: readonly [number, number]): LinkVerdict => judge(at(members, a), at(members, b))
  const dead = pairs.find((pair) => verdictOf(pair) === 'dead')
  if (dead === undefined) return { members, relayed: pairs.filter((pair) => verdictOf(pair) === 'bad'), evicted: [] }
  const out = worseOf([at(members, dead[0]), at(members, dead[1])], { members, here, judge })
  const rest = linkAll(
    members.filter((id) => id !== out.id),
    judge,
    here,
  )
  return { ...rest, evicted: [out, ...rest.evicted] }
}

interface KnownLinks {
  readonly members: readonly MemberId[]
  readonly here: readonly MemberId[]
  readonly judge: Judge
}

/** The one with more links that are not good; of equals the one that came last. */
function worseOf([a, b]: readonly [MemberId, MemberId], { members, here, judge }: KnownLinks): LeftOut {
  const bad = (id: MemberId): number => here.filter((other) => other !== id && judge(id, other) !== 'good').length
  const isFirst = bad(a) === bad(b) ? members.indexOf(a) > members.indexOf(b) : bad(a) > bad(b)
  return isFirst ? { id: a, over: b } : { id: b, over: a }
}

function at(order: readonly MemberId[], rank: number): MemberId {
  const id = order[rank % order.length]
  if (id === undefined) throw new Error('internal: an empty ring has no places')
  return id
}

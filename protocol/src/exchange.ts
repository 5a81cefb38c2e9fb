// How the members of a generation exchange gradients: a row for each exchange, with the peers that a member sends to.
// Both sides ask here. What a member computes for each is a row of volunteer/src/reduce/exchanges.ts; what each costs,
// and when the coordinator prefers it, is in coordinator/src/run/policy.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { MAX_DIRECT_MEMBERS, MAX_RING_MEMBERS } from './limits.ts'

/** Which way a step's gradients take: around the ring, or from each member to each (a direct exchange). */
export const ExchangeSchema = Type.Union([Type.Literal('ring'), Type.Literal('direct')])
export type Exchange = Static<typeof ExchangeSchema>

export interface ExchangeShape {
  /** as in "gradients travel …" */
  readonly way: string
  readonly mostMembers: number
  /** one after the other, from the first contribution to the last sum */
  hops(size: number): number
  /** Whether frames of a step go from the first of two different ranks to the second. */
  sends(from: number, to: number, size: number): boolean
  /** Wrong bytes of a sum came from one member: the predecessor. */
  readonly hasOneSender: boolean
}

export const EXCHANGES: Readonly<Record<Exchange, ExchangeShape>> = {
  ring: {
    way: 'around the ring',
    mostMembers: MAX_RING_MEMBERS,
    hops: (size) => 2 * (size - 1),
    sends: (from, to, size) => (from + 1) % size === to,
    hasOneSender: true,
  },
  direct: {
    way: 'from each member to each (direct exchange)',
    mostMembers: MAX_DIRECT_MEMBERS,
    hops: () => 2,
    sends: () => true,
    hasOneSender: false,
  },
}

/** Whether frames of a step go from one of two different ranks to the other. */
export function exchangesWith(exchange: Exchange, a: number, b: number, size: number): boolean {
  const { sends } = EXCHANGES[exchange]
  return sends(a, b, size) || sends(b, a, size)
}

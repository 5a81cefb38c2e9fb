// Which way the gradients of a generation would take now: what was measured, and what speaks against a direct exchange,
// for the choice itself (exchange-choice.ts).
import type { MemberId } from '@starling-grid/protocol'
import { linkVerdict, type LinkVerdict } from '../links/link-health.ts'
import type { RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { bytesNow } from './encoding-now.ts'
import { chooseExchange, type ExchangeChoice, type ExchangeFigures } from './exchange-choice.ts'

type Now = Pick<Transition, 'state' | 'now'>

/** Which way the frames of a generation of these members would take now (exchange-choice.ts). */
export function exchangeOf({ state, now }: Now, members: readonly MemberId[]): ExchangeChoice {
  const { health, config } = state
  const doubt = doubtOf({ state, now }, members)
  return chooseExchange(config.exchange.asked, health.exchange, {
    members: members.length,
    bytes: bytesNow(state).bytes,
    latencyMs: exchangeLatency(state, members),
    measured: health.measured,
    ...(doubt === undefined ? {} : { doubt }),
  })
}

/** What the next generation may expect of the link between these two: one that takes relays only has no direct link. */
export function linkBetween({ state, now }: Now, a: MemberId, b: MemberId): LinkVerdict {
  const { health, members, config } = state
  const verdict = linkVerdict(health.linkFailures, a, b, { now, halfLifeMs: config.timing.linkMemoryMs })
  const isRelayed = [a, b].some((id) => members.get(id)?.relaysOnly === true)
  return isRelayed && verdict === 'good' ? 'bad' : verdict
}

/** ms one way, over the slowest measured link: all members wait for it either way. */
export function exchangeLatency({ health }: RunState, members: readonly MemberId[]): number | undefined {
  const known = members.flatMap((id) => health.linkMs.get(id) ?? [])
  return known.length === 0 ? undefined : Math.max(...known)
}

/**
 * A ring goes around a bad link, and shows which link brought wrong bytes. A direct exchange can do neither, and would
 * end the same way again.
 */
function doubtOf({ state, now }: Now, members: readonly MemberId[]): ExchangeFigures['doubt'] {
  const { directDoubtedAt } = state.health
  const { linkMemoryMs } = state.config.timing
  if (directDoubtedAt !== undefined && now - directDoubtedAt < linkMemoryMs)
    return {
      always: true,
      reason: 'members of a direct exchange held different bytes; a ring shows on which link right ones become wrong',
    }
  const isBad = members.some((a, i) => members.slice(i + 1).some((b) => linkBetween({ state, now }, a, b) !== 'good'))
  return isBad
    ? { always: false, reason: 'two members cannot link to each other, and a ring goes around that' }
    : undefined
}

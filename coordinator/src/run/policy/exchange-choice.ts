// Chooses the exchange of a step: around the ring, or from each member to each other (a direct exchange). Pure;
// docs/STEPS.md has the formulas. Both move 2(N−1)/N of a gradient for each member. A ring of N has 2(N−1) hops, a
// direct exchange two, and more links.
import { type Exchange, EXCHANGES, MAX_DIRECT_MEMBERS } from '@starling-grid/protocol'
import type { StepPace } from './exchange-cost.ts'
import { bytesPerMsOf, exchangeMs, type Exchanged } from './exchange-model.ts'

/** What a step was measured to take, once the running generation had settled. */
export interface MeasuredExchange {
  readonly members: number
  /** ms of a step beyond computing */
  readonly exchangeMs: number
  readonly computeMs: number
}

/** The last measurement of each way; volatile. */
export type MeasuredExchanges = Readonly<Partial<Record<Exchange, MeasuredExchange>>>

export interface ExchangeFigures {
  readonly members: number
  /** of one gradient as it travels */
  readonly bytes: number
  /** ms from one member to another; undefined: not measured yet */
  readonly latencyMs: number | undefined
  readonly measured: MeasuredExchanges
  /** why not a direct exchange now; `always`: not even when the job asks for it */
  readonly doubt?: { readonly reason: string; readonly always: boolean }
}

/** Predicted ms of a step's exchange, either way; null: nothing to predict it from. */
export interface ExchangeCosts {
  readonly ring: number
  readonly direct: number
}

export interface ExchangeChoice {
  readonly type: Exchange
  readonly reason: string
  readonly costs: ExchangeCosts | null
}

interface ExchangingMembers {
  readonly members: readonly unknown[]
  readonly exchange: Pick<ExchangeChoice, 'type'>
}

/**
 * Of whole steps: a direct exchange must be this much faster, since going over costs a ballot; and it stays while it
 * saves anything.
 */
const DIRECT_PAYS = 1.15
const RING_PAYS = 1.02
/** Steps before a measurement counts: the first of a generation wait for links to warm up. */
const SETTLED_RECORDS = 20
/** ms that opening the links takes which a ring does not need */
export const CONNECT_MS = 2000
/**
 * ms over which that is spread: members come and go a few times a minute (docs/SCALING.md). So long a generation lasts
 * before another way ends it
 */
export const GENERATION_MS = 30_000

/** A step's exchange either way, with its part of what connecting costs. */
export function exchangeTimes(exchanged: Exchanged, computeMs: number): ExchangeCosts {
  const direct = exchangeMs('direct', exchanged)
  const connecting = opensMoreLinks('direct', exchanged.members)
    ? ((computeMs + direct) * CONNECT_MS) / GENERATION_MS
    : 0
  return { ring: exchangeMs('ring', exchanged), direct: direct + connecting }
}

/** Than a ring does: of up to three members every two are neighbours there as well. */
export function opensMoreLinks(exchange: Exchange, members: number): boolean {
  return exchange === 'direct' && members > 3
}

/** The newest measurement beside those before, once the generation has settled. */
export function measuredNow(
  { measured, pace }: { readonly measured: MeasuredExchanges; readonly pace: StepPace | undefined },
  { members, exchange }: ExchangingMembers,
): MeasuredExchanges {
  if (pace === undefined || pace.records < SETTLED_RECORDS || members.length < 2) return measured
  return {
    ...measured,
    [exchange.type]: {
      members: members.length,
      exchangeMs: Math.max(0, pace.recordMs - pace.computeMs),
      computeMs: pace.computeMs,
    },
  }
}

/** What a step would take around the ring, for the choice of its length (ring-size.ts), which knows no other way. */
export function asInRing(pace: StepPace, { members, exchange }: ExchangingMembers, latencyMs = 0): StepPace {
  const more = EXCHANGES.ring.hops(members.length) - EXCHANGES[exchange.type].hops(members.length)
  return { ...pace, recordMs: pace.recordMs + more * latencyMs }
}

/** The way of the next generation, by what the job asks for or by predicted cost. `current`: of the last one. */
export function chooseExchange(asked: 'auto' | Exchange, current: Exchange, figures: ExchangeFigures): ExchangeChoice {
  const { members, doubt } = figures
  const costs = costsOf(current, figures)
  const choose = (type: Exchange, reason: string): ExchangeChoice => ({
    type,
    reason,
    costs: costs === undefined ? null : costs.exchange,
  })
  if (members < 2) return choose('ring', 'one member alone exchanges nothing')
  if (doubt?.always === true) return choose('ring', doubt.reason)
  if (asked !== 'auto') return choose(asked, 'the job asks for it')
  if (members === 2) return choose('ring', 'two members: both ways are the same')
  if (members > MAX_DIRECT_MEMBERS)
    return choose('ring', `${members} members: a direct exchange has ${MAX_DIRECT_MEMBERS} at most`)
  if (doubt !== undefined) return choose('ring', doubt.reason)
  if (costs === undefined) return choose(current, 'what the other way would cost is not measured yet')
  const {
    exchange: { ring, direct },
    computeMs,
    text,
  } = costs
  const gain = (computeMs + ring) / Math.max(computeMs + direct, 1)
  return choose(gain > (current === 'ring' ? DIRECT_PAYS : RING_PAYS) ? 'direct' : 'ring', text)
}

/** What was measured with as many members goes before what is predicted. */
function costsOf(
  current: Exchange,
  { members, bytes, latencyMs, measured }: ExchangeFigures,
): { readonly exchange: ExchangeCosts; readonly computeMs: number; readonly text: string } | undefined {
  const last = measured[current] ?? measured.ring ?? measured.direct
  if (last === undefined || latencyMs === undefined || members < 2) return undefined
  const others = last === measured.ring ? 'ring' : 'direct'
  const bytesPerMs = bytesPerMsOf(last === measured[current] ? current : others, last, { bytes, latencyMs })
  const predicted = exchangeTimes({ members, bytes, latencyMs, bytesPerMs }, last.computeMs)
  const of = (exchange: Exchange): number =>
    measured[exchange]?.members === members ? (measured[exchange]?.exchangeMs ?? 0) : predicted[exchange]
  const exchange = { ring: of('ring'), direct: of('direct') }
  return {
    exchange,
    computeMs: last.computeMs,
    text:
      `a step's exchange would take ${Math.round(exchange.ring)} ms around the ring and ` +
      `${Math.round(exchange.direct)} ms as a direct exchange (${latencyMs.toFixed(1)} ms from one to ` +
      `another${speedText(bytesPerMs)})`,
  }
}

function speedText(bytesPerMs: number): string {
  return Number.isFinite(bytesPerMs) ? `, ${(bytesPerMs / 1000).toPrecision(2)} MB/s` : ''
}

// What decisions about modes, links and members remember of how the ring fares. Volatile: a restarted coordinator finds
// out anew.
import type { Exchange, MemberId } from '@starling-grid/protocol'
import type { LinkFailure } from '../links/link-health.ts'
import type { MeasuredExchanges } from './exchange-choice.ts'
import type { StepPace } from './exchange-cost.ts'
import type { ExchangeTimes } from './ring-size.ts'

/** Times are ms. */
export interface GenerationHealth {
  /** ballots opened by aborts or stalls since the last committed step */
  consecutiveAborts: number
  /** when ballots were opened, the last minute */
  ballots: number[]
  /** of links, forgotten with time (link-health.ts) */
  linkFailures: readonly LinkFailure[]
  /** (accuser, accused, time), since the last committed step; without those about members that were gone indeed */
  aborts: { readonly by: MemberId; readonly blamed: MemberId | null; readonly at: number }[]
  /** last join, departure or abort */
  disturbedAt: number
  /** fallbacks to async with no long time of a working ring between them */
  fallbacks: number
  leftAsyncAt: number | undefined
  /** of the running generation */
  pace: StepPace | undefined
  /** what a record took when last measured, in whatever generation; 0: not yet */
  recordMs: number
  /** what exchanges took in rings of each size, and the samples of a step (ring-size.ts) */
  exchangeTimes: ExchangeTimes
  stepSamples: number
  /** of the last generation: which way frames took */
  exchange: Exchange
  /** what exchanges took around a ring and as a direct exchange, when last measured (exchange-choice.ts) */
  measured: MeasuredExchanges
  /** member → ms that a frame takes from or to it, one way */
  readonly linkMs: Map<MemberId, number>
  /**
   * since when a direct exchange is not trusted: its members held different bytes, and no digest showed which member
   * sent them
   */
  directDoubtedAt: number | undefined
  /** rings formed in a row only so that a version gets a second holder (A5) */
  formsForASecond: number
}

/** Of a coordinator that has just begun. */
export function freshHealth(): GenerationHealth {
  return {
    consecutiveAborts: 0,
    ballots: [],
    linkFailures: [],
    aborts: [],
    disturbedAt: 0,
    fallbacks: 0,
    leftAsyncAt: undefined,
    pace: undefined,
    recordMs: 0,
    exchangeTimes: new Map(),
    stepSamples: 0,
    exchange: 'ring',
    measured: {},
    linkMs: new Map(),
    directDoubtedAt: undefined,
    formsForASecond: 0,
  }
}

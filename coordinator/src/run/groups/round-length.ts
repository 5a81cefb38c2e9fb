// How long rounds of replica groups should last (G2). A long round makes its exchange cheap. A member that leaves takes
// its round along, so where members come and go rounds should be short, as checkpoints should be frequent where
// machines fail (Young, 1974). And the coordinator's line must carry the rounds of all. `chooseRoundLength` is a pure
// function of what was measured; the slice below measures.
import type { VersionId } from '@starling-grid/protocol'
import { bytesNow } from '../policy/encoding-now.ts'
import { own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { makesRounds } from './group-policy.ts'
import { servedByMembers } from './version-sources.ts'

export interface RoundMeasurements {
  /** ms of a round in which a member sends and fetches instead of computing; undefined: none was measured */
  readonly exchangeMs: number | undefined
  /** ms that a member stays, on average; infinity: none has left */
  readonly stayMs: number
  readonly members: number
  /** that all of them send to the coordinator and fetch from it in a round */
  readonly bytes: number
}

export interface RoundLength {
  readonly ms: number
  readonly why: string
}

/**
 * Part of a round that the exchange may take: longer rounds would gain next to nothing, and learn less from a sample.
 */
const EXCHANGE_SHARE = 0.03
/** ms: before anything is measured, and at least: shorter ones are mostly latency and waiting for each other */
const FIRST_MS = 20_000
const LEAST_MS = 10_000
/** ms: three times as long is the longest lease */
const MOST_MS = 200_000
/**
 * Bytes a ms that rounds of a run may ask of the coordinator: with messages a tenth of 1 Gbit/s, since it has other
 * work.
 */
const LINE_BYTES_PER_MS = 11_500

export function chooseRoundLength({ exchangeMs, stayMs, members, bytes }: RoundMeasurements): RoundLength {
  // from one push of a member to its next, exchange passes, too
  const carried = bytes / LINE_BYTES_PER_MS - (exchangeMs ?? 0)
  if (exchangeMs === undefined) return bounded(Math.max(FIRST_MS, carried), 'no round is measured yet')
  const cheap = exchangeMs / EXCHANGE_SHARE
  const kept = Math.sqrt(2 * exchangeMs * stayMs)
  const shorter = kept < cheap ? { ms: kept, why: `members stay ${inWords(stayMs)}` } : { ms: cheap, why: '' }
  if (carried > shorter.ms) return bounded(carried, `the coordinator carries ${members} members at 100 Mbit/s`)
  const share = `exchange takes ${((100 * exchangeMs) / Math.max(shorter.ms, LEAST_MS)).toFixed(1)} % of a round`
  return bounded(shorter.ms, [share, shorter.why].filter((part) => part !== '').join(', '))
}

function bounded(ms: number, why: string): RoundLength {
  return { ms: Math.min(MOST_MS, Math.max(LEAST_MS, ms)), why }
}

function inWords(ms: number): string {
  return ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`
}

declare module '../state.ts' {
  interface Slices {
    rounds: RoundClock
  }
}

export interface RoundClock {
  length: RoundLength
  /** ms of exchange in the newest rounds, the newest last */
  readonly exchanges: number[]
  /** departures and the time that members were here: of this window, and of the one before */
  stays: readonly [StayWindow, StayWindow]
  /** ms: the last look at who is here */
  at: number | undefined
  /** that the newest version took in */
  contributions: number
  /** the version that rounds begin from, and when the first of them began, ms */
  from: { readonly id: VersionId; readonly at: number } | undefined
}

interface StayWindow {
  readonly since: number
  readonly memberMs: number
  /** of that, without work */
  readonly waitingMs: number
  readonly departures: number
}

const NO_STAYS: StayWindow = { since: 0, memberMs: 0, waitingMs: 0, departures: 0 }
/** ms: how members come and go at night says little of the day */
const WINDOW_MS = 600_000
/** Rounds whose exchange is remembered: the median of so many is that of no single member. */
const REMEMBERED = 65
/** Of a round's length: a shorter one would be mostly exchange. */
const LEAST_PART = 0.25
/** A length that differs by less stays: rounds that begin at different versions should end together. */
const HYSTERESIS = 0.25

export const rounds = {
  initial: () => ({
    rounds: {
      length: bounded(FIRST_MS, 'no round is measured yet'),
      exchanges: [],
      stays: [NO_STAYS, NO_STAYS],
      at: undefined,
      contributions: 0,
      from: undefined,
    },
  }),
  tick: count,
  memberLost: ({ state }) => {
    if (!hasRounds(state)) return
    const clock = own(state, 'rounds')
    const [now, before] = clock.stays
    clock.stays = [{ ...now, departures: now.departures + 1 }, before]
  },
} satisfies Aspect

function hasRounds({ config, phase }: RunState): boolean {
  return makesRounds(config.async.groups) && phase.type === 'async'
}

function count({ state, now }: Transition): void {
  if (!hasRounds(state)) return
  const clock = own(state, 'rounds')
  const passed = clock.at === undefined ? 0 : Math.max(0, now - clock.at)
  clock.at = now
  const [current, before] = clock.stays
  const counted = {
    ...current,
    memberMs: current.memberMs + passed * state.members.size,
    waitingMs: current.waitingMs + passed * state.asked.size,
  }
  clock.stays = now - counted.since > WINDOW_MS ? [{ ...NO_STAYS, since: now }, counted] : [counted, before]
}

/** A round came back after `tookMs`, of which its member computed for `computedMs`. */
export function measureExchange(state: RunState, tookMs: number, computedMs: number): void {
  const { exchanges } = own(state, 'rounds')
  exchanges.push(Math.max(0, tookMs - computedMs))
  if (exchanges.length > REMEMBERED) exchanges.shift()
}

/** Rounds have so many times the bytes from now on. */
export function rescaleExchanges(state: RunState, times: number): void {
  const { exchanges } = own(state, 'rounds')
  for (const [i, ms] of exchanges.entries()) exchanges[i] = times * ms
}

/** After each version: rounds that begin from one version are equally long. */
export function renewRoundLength({ state }: Transition, contributions: number): void {
  if (!hasRounds(state)) return
  const clock = own(state, 'rounds')
  clock.contributions = contributions
  const next = chooseRoundLength(measurementsOf(state))
  const differs = Math.abs(next.ms - clock.length.ms) > HYSTERESIS * clock.length.ms
  clock.length = differs ? next : { ms: clock.length.ms, why: next.why }
}

/**
 * ms from one round to the next with so many times the bytes of those that were measured, as long as it should then be,
 * or with as many inner steps as the job says; undefined: none was measured.
 */
export function roundMsAt(state: RunState, times: number): number | undefined {
  const { exchangeMs, ...measured } = measurementsOf(state)
  if (exchangeMs === undefined) return undefined
  if (state.config.async.groups?.innerSteps !== 'auto') {
    const rounds = [...state.members.values()].map(({ pushMs }) => pushMs).toSorted((a, b) => a - b)
    return Math.max(exchangeMs, rounds[rounds.length >> 1] ?? 0) + (times - 1) * exchangeMs
  }
  const asLong = { ...measured, exchangeMs: times * exchangeMs, bytes: times * measured.bytes }
  return chooseRoundLength(asLong).ms + asLong.exchangeMs
}

/** ms of exchange in a round now, between its grant and its push; undefined: none was measured. */
export function exchangeMsOf({ rounds: { exchanges } }: RunState): number | undefined {
  const sorted = exchanges.toSorted((a, b) => a - b)
  return sorted[sorted.length >> 1]
}

/** ms that a round should last now. */
export function roundLengthMs({ rounds: { length } }: RunState): number {
  return length.ms
}

/**
 * ms for a round that begins now from the newest version: it ends with those that began before it. Where these are
 * nearly done it ends with the next ones.
 */
export function roundMsLeft(state: RunState, now: number): number {
  const clock = own(state, 'rounds')
  const { id } = state.chain.head
  if (clock.from?.id !== id) clock.from = { id, at: now }
  const { ms } = clock.length
  const left = ms - (Math.max(0, now - clock.from.at) % ms)
  return left < LEAST_PART * ms ? left + ms : left
}

/** What the rounds of this run are like, in words. */
export function roundsInWords({ rounds: { length, stays, contributions }, config }: RunState): string {
  const paced =
    config.async.groups?.innerSteps === 'auto' ? ` and ${Math.round(length.ms / 1000)} s (${length.why})` : ''
  const [waited, all] = [sumOf(stays, 'waitingMs'), sumOf(stays, 'memberMs')]
  const share = all === 0 ? '' : `, members wait ${Math.round((100 * waited) / all)} % of the time`
  return `${paced}${contributions === 0 ? '' : `, ${contributions} in the last version`}${share}`
}

function sumOf(stays: RoundClock['stays'], field: Exclude<keyof StayWindow, 'since'>): number {
  return stays[0][field] + stays[1][field]
}

function measurementsOf(state: RunState): RoundMeasurements {
  const {
    rounds: { stays },
    members,
  } = state
  const { push, pull } = bytesNow(state).roundBytes
  return {
    exchangeMs: exchangeMsOf(state),
    stayMs: sumOf(stays, 'memberMs') / sumOf(stays, 'departures'),
    members: members.size,
    bytes: members.size * push + (members.size - servedByMembers(state)) * pull,
  }
}

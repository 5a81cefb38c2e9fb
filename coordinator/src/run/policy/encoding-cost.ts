// What each encoding would cost a run whose job says `auto`, by what was measured, and when another one is taken
// (encoding-choice.ts chooses).
import { EXCHANGES, type GradientEncoding } from '@starling-grid/protocol'
import { hasRounds } from '../groups/group-rounds.ts'
import { rescaleExchanges, roundMsAt } from '../groups/round-length.ts'
import type { RingPhase, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { bothWays, chooseEncoding, type EncodingChoice, type EncodingRung, type RungCost } from './encoding-choice.ts'
import { bytesNow, keepEncoding } from './encoding-now.ts'
import { bytesPerMsOf, exchangeMs } from './exchange-model.ts'
import { exchangeLatency } from './exchange-now.ts'

/** Steps before a measurement counts: the first of a generation wait for links to warm up. */
const SETTLED_STEPS = 20
const SETTLED_ROUNDS = 3
const FLOAT_BYTES = 4
/** ms a number that a member encodes and decodes on its CPU (decision 7) */
const CODING_MS = 60e-6

/** As it would be chosen now; undefined: the job says it. */
export function betterEncoding({ state }: Pick<Transition, 'state'>): EncodingChoice | undefined {
  const { encodings } = state.config
  if (encodings === undefined) return undefined
  const { choice, watch: losses } = state.encoding
  return chooseEncoding(costsOf(state, encodings), choice, losses, losses.lowest !== undefined)
}

/** At a FORM, and at a version of the parameter server: what follows uses it. */
export function renewEncoding(transition: Transition): void {
  const { state } = transition
  const { choice, next: wanted } = state.encoding
  const next = wanted ?? betterEncoding(transition)
  if (next === undefined) return
  const before = bytesNow(state)
  keepEncoding(state, next)
  if (next.encoding === choice.encoding) return
  transition.note('mode', `${next.encoding} instead of ${choice.encoding}: ${next.reason}`)
  forgetMeasured(state, before)
}

/** What was measured was of other bytes. */
function forgetMeasured(state: RunState, before: Pick<EncodingRung, 'roundBytes'>): void {
  state.health.measured = {}
  state.health.exchangeTimes = new Map()
  rescaleExchanges(state, bothWays(bytesNow(state).roundBytes) / bothWays(before.roundBytes))
}

function costsOf(state: RunState, encodings: readonly EncodingRung[]): RungCost[] {
  const { phase } = state
  if (phase.type === 'async') return encodings.map((rung) => ({ encoding: rung.encoding, ms: roundCost(state, rung) }))
  const step = phase.type === 'ring' ? stepCost(state, phase) : undefined
  return encodings.map((rung) => ({ encoding: rung.encoding, ms: step?.(rung) }))
}

/** Rounds as long as their bytes ask for: what is shorter learns more from a sample, and loses less with who leaves. */
function roundCost(state: RunState, { roundBytes }: EncodingRung): number | undefined {
  return hasRounds(state) ? roundMsAt(state, bothWays(roundBytes) / bothWays(bytesNow(state).roundBytes)) : undefined
}

/** A step of the running generation, from what its steps took beyond computing. */
function stepCost(state: RunState, { members, exchange }: RingPhase): ((rung: EncodingRung) => number) | undefined {
  const { pace } = state.health
  const latencyMs = exchangeLatency(state, members)
  const settled = state.mode === 'local' ? SETTLED_ROUNDS : SETTLED_STEPS
  if (pace === undefined || pace.records < settled || latencyMs === undefined || members.length < 2) return undefined
  const { type } = exchange
  const count = members.length
  const coding = (used: GradientEncoding): number =>
    used === 'f32' ? 0 : (CODING_MS * (state.config.encodings?.[0]?.bytes ?? 0)) / FLOAT_BYTES
  const exchanged = Math.max(0, pace.recordMs - pace.computeMs - coding(state.encoding.choice.encoding))
  const { bytes } = bytesNow(state)
  const hopsMs = EXCHANGES[type].hops(count) * latencyMs
  const bytesPerMs = bytesPerMsOf(type, { members: count, exchangeMs: exchanged }, { bytes, latencyMs })
  return (rung) =>
    pace.computeMs +
    coding(rung.encoding) +
    Math.max(hopsMs, exchangeMs(type, { members: count, bytes: rung.bytes, latencyMs, bytesPerMs }))
}

// What a run is expected to do with the members that it has, before its steps show it: by their speeds, and by what an
// exchange costs (exchange-model.ts). Made when members change and kept until they change again, so that people can
// compare it with what is measured. Volatile.
import type { MemberId } from '@starling-grid/protocol'
import { speedsOf } from '../ring/membership.ts'
import { batchOfMembers } from '../ring/weak-scaling.ts'
import { own, type RunState } from '../state.ts'
import { CROWD } from '../timing.ts'
import type { Aspect, Transition } from '../transition.ts'
import { exchangeOf } from './exchange-now.ts'

/** Of one step, or of one round. */
export interface StepForecast {
  readonly members: number
  readonly samples: number
  readonly computeMs: number
  /** null: nothing was measured that says what the exchange takes; it is left out */
  readonly exchangeMs: number | null
}

/** ms: for people, all of a crowd are looked at so rarely. */
const RENEWED_MS = 5000

declare module '../state.ts' {
  interface Slices {
    forecast: {
      made: StepForecast | undefined
      /** ms */
      at: number
      /** members of a crowd came or went since */
      isDue: boolean
    }
  }
}

export const forecast = {
  initial: () => ({ forecast: { made: undefined, at: Number.NEGATIVE_INFINITY, isDue: false } }),
  on: {
    'member-joined': (transition) => foreseeWaiting(transition),
    'member-lost': (transition) => foreseeWaiting(transition),
  },
  tick: (transition) => {
    if (transition.state.forecast.isDue) foreseeWaiting(transition)
  },
  started: (transition, members) => foresee(transition, members),
} satisfies Aspect

/** A ring that runs is forecast when it starts. All of a crowd are not looked at whenever one of them comes or goes. */
function foreseeWaiting(transition: Transition): void {
  const { state, now } = transition
  if (state.phase.type === 'ring') return
  const slice = own(state, 'forecast')
  slice.isDue = state.members.size >= CROWD && now - slice.at < RENEWED_MS
  if (!slice.isDue) foresee(transition, [...state.members.keys()])
}

function foresee(transition: Transition, members: readonly MemberId[]): void {
  Object.assign(own(transition.state, 'forecast'), {
    made: stepOf(transition, members),
    at: transition.now,
    isDue: false,
  })
}

function stepOf(transition: Transition, members: readonly MemberId[]): StepForecast | undefined {
  const { state } = transition
  const speed = speedsOf(state, members).reduce((sum, one) => sum + one, 0)
  if (speed <= 0) return undefined
  const samples = samplesOfStep(state, members.length)
  return {
    members: members.length,
    samples,
    computeMs: (1000 * samples) / speed,
    exchangeMs: exchangeMs(transition, members),
  }
}

function samplesOfStep({ config, mode }: RunState, members: number): number {
  return batchOfMembers(config, members) * config.blockSamples * (mode === 'local' ? config.roundSteps : 1)
}

/** Pushes to the parameter server go on beside computing. */
function exchangeMs(transition: Transition, members: readonly MemberId[]): number | null {
  if (members.length < 2 || transition.state.mode === 'async') return 0
  const { type, costs } = exchangeOf(transition, members)
  return costs === null ? null : costs[type]
}

/** Samples per second. */
export function forecastSpeed({ samples, computeMs, exchangeMs: exchange }: StepForecast): number {
  return (1000 * samples) / Math.max(computeMs + (exchange ?? 0), 1e-3)
}

// Which way gradients travel next. Independent of sockets or storage.
import type { Mode } from '@starling-grid/protocol'
import type { RunConfig } from '../state.ts'
import type { Timing } from '../timing.ts'
import { cheaper, costsAsText } from './exchange-cost.ts'
import type { GenerationHealth } from './generation-health.ts'

export interface ModeDecision {
  readonly mode: Mode
  readonly reason: string
}

const MINUTE_MS = 60_000

/**
 * ring → local and back by what a batch costs. Ring → async when reduces keep failing. Async → ring after a calm that
 * doubles with every fallback (hysteresis).
 */
export function nextMode(
  now: number,
  health: GenerationHealth,
  current: Mode,
  { mode, timing, roundSteps }: Pick<RunConfig, 'mode' | 'timing' | 'roundSteps'>,
): ModeDecision {
  if (mode !== 'auto') return { mode, reason: `the job asks for ${mode}` }
  return current === 'async'
    ? fromAsync(now, health, timing)
    : (troubled(now, health, timing) ?? byCost(health, current, roundSteps))
}

function troubled(now: number, health: GenerationHealth, timing: Timing): ModeDecision | undefined {
  if (health.consecutiveAborts >= timing.abortsBeforeFallback)
    return {
      mode: 'async',
      reason: `${health.consecutiveAborts} attempts in a row to reduce gradients in the ring failed`,
    }
  const ballots = health.ballots.filter((at) => now - at < MINUTE_MS).length
  if (ballots > timing.ballotsPerMinute)
    return { mode: 'async', reason: `membership changed ${ballots} times in a minute` }
  return undefined
}

function byCost({ pace }: GenerationHealth, current: 'ring' | 'local', roundSteps: number): ModeDecision {
  const choice = cheaper(pace, current, roundSteps)
  if (choice === undefined || choice.mode === current)
    return { mode: current, reason: current === 'ring' ? 'the ring works' : 'local rounds work' }
  return { mode: choice.mode, reason: costsAsText(choice.costs) }
}

function fromAsync(now: number, health: GenerationHealth, timing: Timing): ModeDecision {
  const calm = now - health.disturbedAt
  const needed = calmNeeded(health, timing)
  if (calm < needed)
    return { mode: 'async', reason: `the ring is tried again after ${Math.round(needed / 1000)} s of calm` }
  return { mode: 'ring', reason: `calm for ${Math.round(calm / 1000)} s` }
}

/** Entering async mode: the next try of the ring waits longer, unless the ring had worked for long. */
export function countFallback(now: number, health: GenerationHealth, timing: Timing): void {
  const worked = health.leftAsyncAt !== undefined && now - health.leftAsyncAt >= timing.quietMaxMs
  health.fallbacks = worked ? 1 : health.fallbacks + 1
}

/** ms without joins, departures and aborts before the ring is tried again */
export function calmNeeded(health: GenerationHealth, timing: Timing): number {
  return Math.min(timing.quietMaxMs, timing.quietMs * 2 ** Math.max(0, health.fallbacks - 1))
}

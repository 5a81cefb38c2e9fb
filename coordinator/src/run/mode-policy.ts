// Which way gradients travel next. Knows nothing of sockets or storage.
import type { Mode } from '@starling-grid/protocol'
import type { RingHealth, RunConfig, Timing } from './state.ts'

export interface ModeDecision {
  readonly mode: Mode
  readonly reason: string
}

const MINUTE_MS = 60_000

/** ring → async when reduces keep failing; async → ring after a calm that doubles with every fallback (hysteresis). */
export function nextMode(now: number, health: RingHealth, current: Mode, { mode, timing }: Pick<RunConfig, 'mode' | 'timing'>): ModeDecision {
  if (mode !== 'auto') return { mode, reason: `the job asks for ${mode}` }
  return current === 'async' ? fromAsync(now, health, timing) : fromRing(now, health, timing)
}

function fromRing(now: number, health: RingHealth, timing: Timing): ModeDecision {
  if (health.consecutiveAborts >= timing.abortsBeforeFallback)
    return { mode: 'async', reason: `${health.consecutiveAborts} attempts in a row to reduce gradients in the ring failed` }
  const ballots = health.ballots.filter((at) => now - at < MINUTE_MS).length
  if (ballots > timing.ballotsPerMinute) return { mode: 'async', reason: `membership changed ${ballots} times in a minute` }
  return { mode: 'ring', reason: 'the ring works' }
}

function fromAsync(now: number, health: RingHealth, timing: Timing): ModeDecision {
  const calm = now - health.disturbedAt
  const needed = calmNeeded(health, timing)
  if (calm < needed) return { mode: 'async', reason: `the ring is tried again after ${Math.round(needed / 1000)} s of calm` }
  return { mode: 'ring', reason: `calm for ${Math.round(calm / 1000)} s` }
}

/** Entering async mode: the next try of the ring waits longer, unless the ring had worked for long. */
export function countFallback(now: number, health: RingHealth, timing: Timing): void {
  const worked = health.leftAsyncAt !== undefined && now - health.leftAsyncAt >= timing.quietMaxMs
  health.fallbacks = worked ? 1 : health.fallbacks + 1
}

/** ms without joins, departures and aborts before the ring is tried again */
export function calmNeeded(health: RingHealth, timing: Timing): number {
  return Math.min(timing.quietMaxMs, timing.quietMs * 2 ** Math.max(0, health.fallbacks - 1))
}

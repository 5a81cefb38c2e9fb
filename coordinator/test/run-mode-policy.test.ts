// Which way gradients travel, and that the run does not flap between the two.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DEFAULT_TIMING, type GenerationHealth } from '@starling-grid/coordinator/run'
import { freshHealth } from '../src/run/policy/generation-health.ts'
import { calmNeeded, countFallback, nextMode } from '../src/run/policy/mode-policy.ts'

const auto = { mode: 'auto', timing: DEFAULT_TIMING, roundSteps: 16 } as const

function health(changed: Partial<GenerationHealth> = {}): GenerationHealth {
  return { ...freshHealth(), ...changed }
}

test('the ring is kept through single aborts and left after several in a row', () => {
  const k = DEFAULT_TIMING.abortsBeforeFallback
  assert.equal(nextMode(0, health({ consecutiveAborts: k - 1 }), 'ring', auto).mode, 'ring')
  assert.equal(nextMode(0, health({ consecutiveAborts: k }), 'ring', auto).mode, 'async')
})

test('the ring is left when membership changes all the time, by the ballots of the last minute', () => {
  const ballots = new Array<number>(DEFAULT_TIMING.ballotsPerMinute + 1).fill(1000)
  assert.equal(nextMode(2000, health({ ballots }), 'ring', auto).mode, 'async')
  assert.equal(nextMode(62_000, health({ ballots }), 'ring', auto).mode, 'ring')
})

test('auto enters and leaves local rounds by measured costs; a job without them stays in the ring', () => {
  const slow = { records: 50, recordMs: 3000, computeMs: 1000 }
  const { mode, reason } = nextMode(0, health({ pace: slow }), 'ring', auto)
  assert.equal(mode, 'local')
  assert.match(reason, /3000 ms in the ring and 1125 ms in local rounds/)
  assert.equal(nextMode(0, health({ pace: slow }), 'ring', { ...auto, roundSteps: 1 }).mode, 'ring')
  assert.equal(
    nextMode(0, health({ pace: { records: 5, recordMs: 16_100, computeMs: 16_000 } }), 'local', auto).mode,
    'ring',
  )
  assert.equal(nextMode(0, health({ pace: slow, consecutiveAborts: 9 }), 'local', auto).mode, 'async')
})

test('the ring is tried again after a calm, and any disturbance begins it anew', () => {
  const calm = DEFAULT_TIMING.quietMs
  assert.equal(nextMode(calm - 1, health(), 'async', auto).mode, 'async')
  assert.equal(nextMode(calm, health(), 'async', auto).mode, 'ring')
  assert.equal(nextMode(calm, health({ disturbedAt: 1 }), 'async', auto).mode, 'async')
})

test('every fallback doubles the calm that is needed, up to a bound', () => {
  const needed = [1, 2, 3, 20].map((fallbacks) => calmNeeded(health({ fallbacks }), DEFAULT_TIMING))
  assert.deepEqual(needed, [
    DEFAULT_TIMING.quietMs,
    2 * DEFAULT_TIMING.quietMs,
    4 * DEFAULT_TIMING.quietMs,
    DEFAULT_TIMING.quietMaxMs,
  ])
})

test('a ring that had worked for long begins with the shortest calm again', () => {
  const worn = health({ fallbacks: 5, leftAsyncAt: 0 })
  countFallback(DEFAULT_TIMING.quietMaxMs - 1, worn, DEFAULT_TIMING)
  assert.equal(worn.fallbacks, 6)
  countFallback(DEFAULT_TIMING.quietMaxMs, worn, DEFAULT_TIMING)
  assert.equal(worn.fallbacks, 1)
})

test('a job that asks for one mode keeps it, and every decision says why', () => {
  const bad = health({ consecutiveAborts: 99 })
  for (const mode of ['ring', 'local', 'async'] as const) {
    const decision = nextMode(0, bad, mode, { ...auto, mode })
    assert.equal(decision.mode, mode)
    assert.match(decision.reason, new RegExp(mode))
  }
})

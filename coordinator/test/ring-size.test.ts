import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StepPace } from '../src/run/policy/exchange-cost.ts'
import { bestSize, remember } from '../src/run/policy/ring-size.ts'

const equal = (count: number): number[] => new Array<number>(count).fill(1000)
/** ms of exchange by the formula that the choice learns */
const exchange = (size: number, alpha: number, beta: number): number => 2 * (size - 1) * (alpha + beta / size)

test('over links with latency a ring has as many members as make the fastest step, and says what it gains', () => {
  const { size, stepMs, allMs } = bestSize({
    speeds: equal(32),
    samples: 4000,
    times: new Map([[32, exchange(32, 20, 0)]]),
  })
  // 4000 ms of work: 4000/n + 40(n − 1) is least at n = 10
  assert.equal(size, 10)
  assert.equal(Math.round(stepMs), 760)
  assert.equal(Math.round(allMs), 1365)
})

test('where bandwidth is the limit a long ring costs hardly more than a short one, and all take part', () => {
  const times = new Map([4, 8, 32].map((size) => [size, exchange(size, 0.5, 100)]))
  assert.equal(bestSize({ speeds: equal(32), samples: 100_000, times }).size, 32)
})

test('one measurement is taken for latency; a second one corrects it', () => {
  const [first, second] = [exchange(32, 0, 100), exchange(3, 0, 100)]
  assert.ok(bestSize({ speeds: equal(32), samples: 200, times: new Map([[32, first]]) }).size < 32)
  const { size } = bestSize({
    speeds: equal(32),
    samples: 20_000,
    times: new Map([
      [32, first],
      [3, second],
    ]),
  })
  assert.equal(size, 32)
})

test('no member is left out for a small gain', () => {
  assert.equal(bestSize({ speeds: equal(12), samples: 4000, times: new Map([[12, exchange(12, 20, 0)]]) }).size, 12)
  assert.equal(bestSize({ speeds: equal(32), samples: 4000, times: new Map() }).size, 32)
})

test('slow members are left out before fast ones, but three remain, so that deaths do not cost the version', () => {
  const speeds = [9000, 9000, 9000, 100, 100, 100, 100, 100]
  assert.equal(bestSize({ speeds, samples: 1000, times: new Map([[8, exchange(8, 20, 0)]]) }).size, 3)
  assert.equal(bestSize({ speeds: [90_000, 1], samples: 1000, times: new Map([[2, exchange(2, 20, 0)]]) }).size, 2)
})

test('a size is learned from settled rings of two and more', () => {
  const pace: StepPace = { records: 30, recordMs: 500, computeMs: 200 }
  assert.deepEqual([...remember(new Map(), 4, pace)], [[4, 300]])
  assert.equal(remember(new Map(), 1, pace).size, 0)
  assert.equal(remember(new Map(), 4, { ...pace, records: 2 }).size, 0)
})

test('no member is left out where a direct exchange of all is faster than a short ring', () => {
  const figures = { speeds: equal(10), samples: 1000, times: new Map([[10, exchange(10, 40, 0)]]) }
  assert.ok(bestSize(figures).size < 10)
  const { size, stepMs } = bestSize({ ...figures, directMs: (members) => (members > 2 ? 2 * 40 : undefined) })
  assert.equal(size, 10)
  assert.equal(Math.round(stepMs), 180)
})

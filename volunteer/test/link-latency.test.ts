// What heartbeats and their answers say of a link.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LinkLatency } from '../src/link/link-latency.ts'

/** One heartbeat over a link that needs so many ms each way, and is then answered at once. */
function beatOver(latency: LinkLatency, now: number, oneWayMs: number): void {
  const answer = new LinkLatency().heard(latency.beat(now), now + oneWayMs)
  assert.ok(answer !== undefined)
  assert.equal(latency.heard(answer, now + 2 * oneWayMs), undefined, 'an answer is not answered')
}

test('latency is half of the fastest of the last round trips', () => {
  const latency = new LinkLatency()
  assert.equal(latency.ms, undefined)
  for (const [i, ms] of [30, 12, 300].entries()) beatOver(latency, 1000 * i, ms)
  assert.equal(latency.ms, 12)
  for (let i = 0; i < 20; i++) beatOver(latency, 10_000 + 1000 * i, 40)
  assert.equal(latency.ms, 40, 'a line that became longer is found out')
})

test('answers without a request, of another heartbeat, or repeated measure nothing', () => {
  const latency = new LinkLatency()
  const first = new LinkLatency().heard(latency.beat(0), 5)
  assert.ok(first !== undefined)
  latency.beat(1000)
  latency.heard(first, 1001)
  assert.equal(latency.ms, undefined)
  beatOver(latency, 2000, 25)
  const last = new LinkLatency().heard(latency.beat(3000), 3000)
  assert.ok(last !== undefined)
  latency.heard({ ...last, hop: 7 }, 3001)
  latency.heard(last, 3100)
  latency.heard(last, 3101)
  assert.equal(latency.ms, 25)
})

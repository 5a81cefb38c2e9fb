// How fast members count as beside each other, whatever the order in which they stand.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { random32 } from '@starling-grid/protocol'
import { countedSpeeds } from '../src/run/ring/speed-trust.ts'

test('a claim counts up to twice the lower median of the others, which is of all others and of no one else', () => {
  const random = random32(3)
  for (let round = 0; round < 500; round++) {
    const speeds = Array.from({ length: 2 + (random() % 9) }, () => random() % 8)
    if (speeds.filter((speed) => speed > 0).length < 2) continue
    const members = speeds.map((samplesPerSecond) => ({ samplesPerSecond, shownSpeed: 0, stepsHeld: 0 }))
    const wanted = speeds.map((speed, rank) => {
      const others = speeds.filter((other, i) => i !== rank && other > 0).sort((a, b) => a - b)
      const usual = others[(others.length - 1) >> 1] ?? 0
      return speed > 0 ? Math.min(speed, 2 * usual) : usual
    })
    assert.deepEqual(countedSpeeds(members), wanted, speeds.join())
  }
})

// How fast members count as: thousands are sorted once, and each is compared with the others as if they were sorted
// without it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { countedSpeeds, type Speed } from '../src/run/ring/speed-trust.ts'

const speed = fc.record<Speed>({
  // few values, so that members are often alike
  samplesPerSecond: fc.constantFrom(0, 10, 20, 30, 1000),
  shownSpeed: fc.constantFrom(0, 5, 50, 5000),
  stepsHeld: fc.constantFrom(0, 49, 50),
})

/** Of the others, as the rule says it. */
function usual(members: readonly Speed[], rank: number): number {
  const others = members.filter((_, i) => i !== rank).map(({ samplesPerSecond }) => samplesPerSecond)
  const known = others.filter((value) => value > 0).sort((a, b) => a - b)
  return known[(known.length - 1) >> 1] ?? 0
}

test('what a member claims is compared with the lower median of the others', () => {
  fc.assert(
    fc.property(fc.array(speed, { minLength: 2, maxLength: 9 }), (members) => {
      const counted = countedSpeeds(members)
      const known = members.filter(({ samplesPerSecond }) => samplesPerSecond > 0).length
      for (const [rank, { samplesPerSecond, shownSpeed, stepsHeld }] of members.entries()) {
        const middle = usual(members, rank)
        const shown = stepsHeld < 50 ? 0 : Math.min(16 * middle, 4 * shownSpeed)
        const believed = samplesPerSecond > 0 ? Math.min(samplesPerSecond, Math.max(2 * middle, shown)) : middle
        assert.equal(counted[rank], known < 2 ? 0 : believed)
      }
    }),
  )
})

test('one alone counts as fast as it says', () => {
  assert.deepEqual(countedSpeeds([{ samplesPerSecond: 70, shownSpeed: 0, stepsHeld: 0 }]), [70])
})

test('5,000 members are looked at a few times each, not once for each other one', () => {
  let looks = 0
  const members = Array.from({ length: 5000 }, (_, i) => ({
    get samplesPerSecond() {
      looks++
      return i + 1
    },
    shownSpeed: 0,
    stepsHeld: 0,
  }))
  assert.equal(countedSpeeds(members)[2500], 2501)
  assert.ok(looks <= 8 * members.length, `${looks} looks`)
})

// Refusals are counted each, and told now and then.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusals } from '../src/host/refusals.ts'

test('every refusal counts; of each code the first is an event, and the first after ten seconds', () => {
  const refusals = new Refusals()
  const told = [0, 1, 9999, 10_000, 10_001].map((now) => refusals.count('checksum', now))
  assert.deepEqual(told, [true, false, false, true, false])
  assert.equal(refusals.count('rate-exceeded', 10_001), true)
  assert.deepEqual(refusals.byCode, { checksum: 5, 'rate-exceeded': 1 })
})

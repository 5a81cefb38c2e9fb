import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Throughput } from '../src/host/throughput.ts'

test('all bytes are counted, and the speed is that of the last whole seconds', () => {
  const throughput = new Throughput()
  for (let ms = 0; ms < 20_000; ms += 100) throughput.add(1000, ms)
  assert.equal(throughput.total, 200_000)
  assert.equal(throughput.perSecond(20_000), 10_000)
  assert.equal(throughput.perSecond(22_000), 6_000)
  assert.equal(throughput.perSecond(60_000), 0)
})

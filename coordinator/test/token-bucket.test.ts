// A rate is a limit: so much at once, so much a second, and never more than the burst however long a caller waits.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TokenBucket } from '../src/token-bucket.ts'

function bucketOf(perSecond: number, burst: number): { readonly bucket: TokenBucket; wait(ms: number): void } {
  let now = 0
  const wait = (ms: number): void => {
    now += ms
  }
  return { bucket: new TokenBucket(perSecond, burst, { now: () => now }), wait }
}

const takenOf = (bucket: TokenBucket, tries: number): number =>
  Array.from({ length: tries }, () => bucket.take()).filter(Boolean).length

test('a caller has its burst at once, then its rate, and no more than the burst after any wait', () => {
  const { bucket, wait } = bucketOf(2, 5)
  assert.equal(takenOf(bucket, 20), 5)
  wait(1000)
  assert.equal(takenOf(bucket, 20), 2)
  wait(3_600_000)
  assert.equal(takenOf(bucket, 20), 5)
})

test('what cannot be paid costs nothing, and a debt is paid before anything else is taken', () => {
  const { bucket, wait } = bucketOf(1, 5)
  assert.deepEqual([bucket.pay(6), bucket.pay(5), bucket.pay(1)], [false, true, false])
  bucket.charge(3)
  wait(3000)
  assert.equal(bucket.take(), false)
  wait(1000)
  assert.equal(bucket.take(), true)
})

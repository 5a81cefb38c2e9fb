// Sums of committed steps are asked of members after the fact: what the chain's digests do not prove is not taken.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digest, extend, genesis, jobId, type MemberId, memberId, type StepRecord } from '@starling-grid/protocol'
import { StepSums } from '../src/audit/step-sums.ts'
import { processClock } from '../src/clock.ts'
import type { SumStep } from '../src/run/state.ts'

const LENGTH = 3
const [A, B] = [memberId('a'), memberId('b')]
const ZERO = genesis(jobId('sums'), 'model', 1)
const SUMS = [new Float32Array([1, 2, 3]), new Float32Array([4, 5, 6])]

function bytesOf(sums: readonly Float32Array[]): Buffer {
  return Buffer.concat(sums.map(({ buffer }) => new Uint8Array(buffer as ArrayBuffer)))
}

function twoSteps(): SumStep[] {
  let version = ZERO
  return SUMS.map((sum, i) => {
    const gradDigest = digest(new Uint8Array(sum.buffer))
    const kind = { v: i + 1, generation: 1, modeEpoch: 0, kind: 'ring' } as const
    const record: StepRecord = { ...kind, blocks: [], samples: 1, targets: 1, lossSum: 1, correct: 0, gradDigest }
    version = extend(version, record)
    return { record, version }
  })
}

function desk(): { readonly sums: StepSums; readonly asked: MemberId[] } {
  const asked: MemberId[] = []
  return { asked, sums: new StepSums({ clock: processClock, length: LENGTH, send: (to) => void asked.push(to) }) }
}

const later = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

test('sums that the records prove are taken from one member, bit by bit', async () => {
  const { sums, asked } = desk()
  const steps = twoSteps()
  const answer = sums.ask([A, B], steps)
  await later()
  const last = steps[1]?.version.id ?? assert.fail()
  assert.equal(sums.expects(B, last), undefined, 'no other member may send them')
  assert.equal(sums.expects(A, last), 24)
  assert.equal(await sums.accept(A, last, bytesOf(SUMS)), true)
  assert.deepEqual(await answer, { member: A, sums: SUMS })
  assert.deepEqual(asked, [A])
})

for (const [what, lie] of [
  ['other sums', [SUMS[1], SUMS[0]]],
  ['nothing', []],
] as const)
  test(`a member that sends ${what} is not believed, and another is asked`, async () => {
    const { sums, asked } = desk()
    const steps = twoSteps()
    const last = steps[1]?.version.id ?? assert.fail()
    const answer = sums.ask([A, B], steps)
    await later()
    assert.equal(await sums.accept(A, last, bytesOf(lie as readonly Float32Array[])), false)
    await later()
    assert.equal(await sums.accept(A, last, bytesOf(SUMS)), false, 'its turn is over')
    assert.equal(await sums.accept(B, last, bytesOf(SUMS)), true)
    assert.deepEqual(await answer, { member: B, sums: SUMS })
    assert.deepEqual(asked, [A, B])
  })

test('a dispute does not wait for an audit whose member is silent, and their answers are not mixed up', async () => {
  const { sums, asked } = desk()
  const steps = twoSteps()
  const [audit, dispute] = [sums.ask([A], steps.slice(0, 1)), sums.ask([B], steps)]
  await later()
  assert.deepEqual(asked, [A, B])
  await sums.accept(B, steps[1]?.version.id ?? assert.fail(), bytesOf(SUMS))
  assert.equal((await dispute)?.sums.length, 2)
  await sums.accept(A, steps[0]?.version.id ?? assert.fail(), bytesOf(SUMS.slice(0, 1)))
  assert.equal((await audit)?.sums.length, 1)
})

test('who is out of time asks no further member', async () => {
  const { sums, asked } = desk()
  const steps = twoSteps()
  const limit = new AbortController()
  const answer = sums.ask([A, B], steps, limit.signal)
  await later()
  limit.abort()
  await sums.accept(A, steps[1]?.version.id ?? assert.fail(), new Uint8Array())
  assert.equal(await answer, undefined)
  assert.deepEqual(asked, [A])
})

test('more bytes than members keep are not asked for', async () => {
  const asked: MemberId[] = []
  const sums = new StepSums({ clock: processClock, length: 8 * 1024 * 1024, send: (to) => void asked.push(to) })
  assert.equal(sums.most, 1)
  assert.equal(await sums.ask([A], twoSteps()), undefined)
  assert.deepEqual(asked, [])
})

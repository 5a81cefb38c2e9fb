// The version that a member holds: whole before and after an update, equal on every member, and able to help one that
// is behind.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mlp } from '@starling-grid/model'
import {
  digest,
  extend,
  genesis,
  jobId,
  sha256Name,
  type StepRecord,
  trainingBlock,
  SUMS_KEPT,
} from '@starling-grid/protocol'
import { LocalVersion } from '@starling-grid/volunteer'

const spec = mlp({ input: [4], hidden: [3], classes: 2 })
const first = genesis(jobId('job'), 'hash', 1)
const record = (v: number): StepRecord => ({
  v,
  generation: 1,
  modeEpoch: 0,
  kind: 'ring',
  blocks: [trainingBlock(0, v)],
  samples: 4,
  targets: 4,
  lossSum: 1,
  correct: 0,
  gradDigest: sha256Name('0'.repeat(64)),
})

function held(): LocalVersion {
  const version = new LocalVersion({ spec, optimizer: { type: 'adam', lr: 0.01 }, clipNorm: 1 })
  version.adoptInitial(first, 1)
  return version
}

function gradient(version: LocalVersion, seed: number): Float32Array {
  return Float32Array.from({ length: version.layout.total }, (_, i) => Math.sin(i * 1.7 + seed))
}

test('members that apply the same sums hold the same bytes', () => {
  const [a, b] = [held(), held()]
  let version = first
  for (let v = 1; v <= 20; v++) {
    version = extend(version, record(v))
    for (const member of [a, b]) member.apply(record(v), version, gradient(member, v))
  }
  assert.equal(digest(a.encode()), digest(b.encode()))
})

test('what was prepared is applied as if it had not been, and only where it fits', () => {
  const [plain, member] = [held(), held()]
  const versions = [first]
  const sums = [1, 2, 3, 4, 5].map((seed) => gradient(plain, seed))
  const step = (v: number, change: Partial<StepRecord>, prepared: Partial<StepRecord>, other = false): void => {
    const sum = sums[v - 1] ?? assert.fail()
    const taken = { ...record(v), ...change }
    const version = extend(versions.at(-1) ?? first, taken)
    versions.push(version)
    member.prepare({ ...record(v), ...prepared }, other ? gradient(member, 9) : sum)
    assert.equal(digest(member.encode()), digest(plain.encode()), 'what is held stays until it is applied')
    for (const one of [plain, member]) one.apply(taken, version, sum)
    assert.equal(digest(member.encode()), digest(plain.encode()), `step ${v}`)
  }
  step(1, {}, {})
  step(2, {}, { targets: 5 })
  step(3, { scaling: { batch: 4, scale: 2, lr: 0.02 } }, {})
  step(4, {}, {}, true)
  const sum = sums[4] ?? assert.fail()
  member.prepare(record(5), sum)
  const [before, version] = [versions.at(-1) ?? first, extend(versions.at(-1) ?? first, record(5))]
  const elsewhere = held()
  elsewhere.apply(record(1), before, gradient(plain, 8))
  for (const one of [plain, member]) {
    one.adopt(one.decode(elsewhere.encode(), before), before)
    one.apply(record(5), version, sum)
  }
  assert.equal(digest(member.encode()), digest(plain.encode()), 'adopted in between')
  const [last, read] = [extend(version, record(6)), gradient(plain, 6)]
  member.prepare(record(6), read)
  plain.apply(record(6), last, gradient(plain, 6))
  read.fill(0) // what is prepared is not computed again
  member.apply(record(6), last, read)
  assert.equal(digest(member.encode()), digest(plain.encode()), 'swapped in')
})

test('a step with weak scaling is made with the rate of its record, without the schedule of the job', () => {
  const optimizer = { type: 'adam', lr: 0.01, schedule: { type: 'linear', to: 0, steps: 10 } } as const
  const scaled = new LocalVersion({ spec, optimizer, clipNorm: 1 })
  const wanted = new LocalVersion({ spec, optimizer: { type: 'adam', lr: 0.02 }, clipNorm: 1 })
  const taken = { ...record(1), scaling: { batch: 4, scale: 2, lr: 0.02 } }
  for (const one of [scaled, wanted]) {
    one.adoptInitial(first, 1)
    one.apply(taken, extend(first, taken), gradient(one, 1))
  }
  assert.deepEqual(scaled.parameters, wanted.parameters)
})

test('a newcomer that adopts the bytes goes on exactly as the member that sent them', () => {
  const [member, newcomer] = [held(), held()]
  const second = extend(first, record(1))
  const third = extend(second, record(2))
  member.apply(record(1), second, gradient(member, 1))
  newcomer.adopt(newcomer.decode(member.encode(), second), second)
  for (const one of [member, newcomer]) one.apply(record(2), third, gradient(one, 2))
  assert.equal(digest(newcomer.encode()), digest(member.encode()))
})

test('the reduced gradients of the last steps are kept, and replaying them makes the same bytes', () => {
  const [member, other] = [held(), held()]
  const versions = [first]
  const last = SUMS_KEPT + 6
  for (let v = 1; v <= last; v++) {
    versions.push(extend(versions.at(-1) ?? first, record(v)))
    member.apply(record(v), versions[v] ?? first, gradient(member, v))
    if (v <= last - 3) other.apply(record(v), versions[v] ?? first, gradient(other, v))
  }
  assert.equal(member.reduced(versions[6] ?? first), undefined, 'the newest alone')
  for (const v of [last - 2, last - 1, last])
    other.apply(record(v), versions[v] ?? first, member.reduced(versions[v] ?? first) ?? new Float32Array())
  assert.equal(digest(other.encode()), digest(member.encode()))
})

test('replaying pays below the size of the state: parameters and two moments', () => {
  assert.equal(
    new LocalVersion({
      spec: mlp({ input: [400], hidden: [300], classes: 2 }),
      optimizer: { type: 'adam', lr: 0.01 },
      clipNorm: 1,
    }).replayMost,
    2,
  )
})

test('the sum that was applied stays as it came: others may still ask for it', () => {
  const member = held()
  const sum = gradient(member, 3)
  const before = sum.slice()
  member.apply(record(1), extend(first, record(1)), sum)
  assert.deepEqual(sum, before)
})

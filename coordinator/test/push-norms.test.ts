// How much one push of an off-ring member counts, beside others that are honest or not.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { KnownNorms, weighPush } from '../src/run/async/push-norms.ts'

const [a, b, liar] = ['a', 'b', 'liar'].map(memberId)
const norms = (gradient: number, statistics = 0) => ({ gradient, statistics })

function weigh(
  known: KnownNorms,
  author: ReturnType<typeof memberId> | undefined,
  gradient: number,
  offRingMembers = 3,
): number | undefined {
  return weighPush(known, author ?? assert.fail(), norms(gradient), offRingMembers)?.gradient
}

/** The norm that an enormous push still has after weighing. */
function enormous(known: KnownNorms): number {
  return 1e6 * (weigh(known, liar, 1e6) ?? 0)
}

test('pushes of honest off-ring members count whole, though they differ by a factor of two', () => {
  const known = new KnownNorms()
  for (const author of [a, b]) weigh(known, author, 1)
  for (let i = 0; i < 50; i++)
    for (const [author, norm] of [
      [a, 1.2],
      [b, 2],
      [liar, 0.9],
    ] as const)
      assert.equal(weigh(known, author, norm), 1)
})

test('one liar of three moves the ring no further than four times the usual, from its first push to its last', () => {
  const known = new KnownNorms()
  assert.equal(weigh(known, liar, 1e6), undefined, 'nothing to compare it with')
  assert.equal(weigh(known, liar, 1e6), undefined, 'nor with itself')
  for (let i = 0; i < 100; i++) {
    assert.equal(weigh(known, a, 1), 1)
    assert.equal(weigh(known, b, 1.5), 1)
    for (let k = 0; k < 10; k++)
      assert.ok(enormous(known) < 4.01 * 1.5, 'also when it pushes ten times as often as the others')
  }
})

test('nor does it make the pushes of the others count less by pushing next to nothing', () => {
  const known = new KnownNorms()
  for (const author of [a, b]) weigh(known, author, 1)
  for (let i = 0; i < 100; i++) {
    weigh(known, liar, i % 2 === 0 ? 1e-9 : 0)
    assert.equal(weigh(known, a, 1), 1)
    assert.equal(weigh(known, b, 1.5), 1)
  }
})

test('running statistics have a bound of their own', () => {
  const known = new KnownNorms()
  for (const author of [a, b]) weighPush(known, author ?? assert.fail(), norms(1, 5), 3)
  const weights = weighPush(known, liar ?? assert.fail(), norms(1, 1e9), 3)
  assert.equal(weights?.gradient, 1)
  assert.ok(1e9 * (weights?.statistics ?? 1) <= 4 * 5 + 1e-3)
})

test('an off-ring member alone is compared with itself', () => {
  const known = new KnownNorms()
  for (let i = 0; i < 5; i++) assert.equal(weigh(known, a, 1, 1), 1)
  assert.ok(1e6 * (weigh(known, a, 1e6, 1) ?? 1) <= 4)
})

test('an off-ring member that pushes ever more raises its own bound step by step, never at once', () => {
  const known = new KnownNorms()
  for (let i = 0; i < 5; i++) weigh(known, a, 1, 1)
  for (let i = 0; i < 8; i++) assert.ok(1e6 * (weigh(known, a, 1e6, 1) ?? 1) <= 16.01, `push ${i}`)
})

test('the bound follows the last 33 pushes of each member, as if they were sorted anew', () => {
  const known = new KnownNorms()
  const remembered = new Map<number, number[]>()
  const lowerMedian = (values: readonly number[]): number | undefined =>
    [...values].sort((x, y) => x - y)[(values.length - 1) >> 1]
  const expected = (): number => {
    const opinions = [...remembered.values()].map((pushes) => lowerMedian(pushes.filter((norm) => norm > 0)) ?? 0)
    return 4 * (lowerMedian(opinions.filter((usual) => usual > 0)) ?? Number.POSITIVE_INFINITY)
  }
  for (let i = 0; i < 2000; i++) {
    const author = (i * 7 + (i >> 3)) % 5
    const id = memberId(`member-${author}`)
    if (i % 97 === 0) {
      known.delete(id)
      remembered.delete(author)
    }
    const norm = i % 11 === 0 ? 0 : ((i * 7919) % 101) * 10 ** (i % 3)
    const before = remembered.get(author) ?? []
    remembered.set(author, [...before, norm])
    const kept = Math.min(norm, expected())
    remembered.set(author, [...before, kept].slice(-33))
    weighPush(known, id, norms(norm), 5)
    assert.equal(known.bound('gradient'), expected())
    assert.deepEqual(
      known.of(id).map(({ gradient }) => gradient),
      remembered.get(author),
    )
  }
})

// How much one push of a guest counts, beside others that are honest or not.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { type GuestNorms, weighPush } from '../src/run/guest-norms.ts'

const [a, b, liar] = ['a', 'b', 'liar'].map(memberId)
const norms = (gradient: number, statistics = 0) => ({ gradient, statistics })

function weigh(
  known: GuestNorms,
  guest: ReturnType<typeof memberId> | undefined,
  gradient: number,
  guests = 3,
): number | undefined {
  return weighPush(known, guest ?? assert.fail(), norms(gradient), guests)?.gradient
}

/** The norm that an enormous push still has after weighing. */
function enormous(known: GuestNorms): number {
  return 1e6 * (weigh(known, liar, 1e6) ?? 0)
}

test('pushes of honest guests count whole, though they differ by a factor of two', () => {
  const known: GuestNorms = new Map()
  for (const guest of [a, b]) weigh(known, guest, 1)
  for (let i = 0; i < 50; i++)
    for (const [guest, norm] of [
      [a, 1.2],
      [b, 2],
      [liar, 0.9],
    ] as const)
      assert.equal(weigh(known, guest, norm), 1)
})

test('one liar of three moves the ring no further than four times the usual, from its first push to its last', () => {
  const known: GuestNorms = new Map()
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
  const known: GuestNorms = new Map()
  for (const guest of [a, b]) weigh(known, guest, 1)
  for (let i = 0; i < 100; i++) {
    weigh(known, liar, i % 2 === 0 ? 1e-9 : 0)
    assert.equal(weigh(known, a, 1), 1)
    assert.equal(weigh(known, b, 1.5), 1)
  }
})

test('running statistics have a bound of their own', () => {
  const known: GuestNorms = new Map()
  for (const guest of [a, b]) weighPush(known, guest ?? assert.fail(), norms(1, 5), 3)
  const weights = weighPush(known, liar ?? assert.fail(), norms(1, 1e9), 3)
  assert.equal(weights?.gradient, 1)
  assert.ok(1e9 * (weights?.statistics ?? 1) <= 4 * 5 + 1e-3)
})

test('a guest alone is compared with itself', () => {
  const known: GuestNorms = new Map()
  for (let i = 0; i < 5; i++) assert.equal(weigh(known, a, 1, 1), 1)
  assert.ok(1e6 * (weigh(known, a, 1e6, 1) ?? 1) <= 4)
})

test('a guest that pushes ever more raises its own bound step by step, never at once', () => {
  const known: GuestNorms = new Map()
  for (let i = 0; i < 5; i++) weigh(known, a, 1, 1)
  for (let i = 0; i < 8; i++) assert.ok(1e6 * (weigh(known, a, 1e6, 1) ?? 1) <= 16.01, `push ${i}`)
})

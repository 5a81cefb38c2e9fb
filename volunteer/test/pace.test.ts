// Senders do not run away from receivers, and both always get on.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { EAGER_BYTES, MAX_AHEAD, Pace } from '../src/collectives/pace.ts'

const LINE = 'a line'
const [SENDER, RECEIVER] = [0, 1]

test('a large message waits until the receiver has begun, a small one does not', () => {
  const pace = new Pace()
  assert.ok(pace.mayGo(RECEIVER, LINE, 0, EAGER_BYTES))
  assert.ok(!pace.mayGo(RECEIVER, LINE, 0, EAGER_BYTES + 1))
  pace.heard(RECEIVER, LINE, 0)
  assert.ok(pace.mayGo(RECEIVER, LINE, 0, EAGER_BYTES + 1))
  assert.ok(!pace.mayGo(RECEIVER, 'another line', 0, EAGER_BYTES + 1))
})

test('small messages stop after a number of operations', () => {
  const pace = new Pace()
  for (let sequence = 0; sequence < MAX_AHEAD; sequence++) assert.ok(pace.mayGo(RECEIVER, LINE, sequence, 1))
  assert.ok(!pace.mayGo(RECEIVER, LINE, MAX_AHEAD, 1))
  pace.heard(RECEIVER, LINE, 0)
  assert.ok(pace.mayGo(RECEIVER, LINE, MAX_AHEAD, 1))
})

test("every operation gets through at any speed of the ranks, and the receiver's queue is bounded", () => {
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom(1, EAGER_BYTES, EAGER_BYTES + 1), { minLength: 1, maxLength: 300, size: 'max' }),
      fc.array(fc.boolean(), { maxLength: 20, size: 'max' }).map((list) => [...list, true, false]),
      (sizes, turns) => {
        const [sender, receiver] = [new Pace(), new Pace()]
        let [sent, begun, stuck] = [0, 0, 0]
        for (let turn = 0; begun < sizes.length; turn++) {
          const before = sent + begun
          if (turns[turn % turns.length] === true)
            sent += Number(sent < sizes.length && sender.mayGo(RECEIVER, LINE, sent, sizes[sent] ?? 0))
          else {
            if (receiver.mustTell(SENDER, LINE, begun, sizes[begun] ?? 0)) sender.heard(RECEIVER, LINE, begun)
            begun += Number(begun < sent)
          }
          stuck = sent + begun > before ? 0 : stuck + 1
          const waiting = sizes.slice(begun, sent)
          assert.ok(waiting.length <= MAX_AHEAD + 1 && waiting.slice(1).every((size) => size <= EAGER_BYTES))
          assert.ok(stuck < 100, `nothing moves: ${sent} sent, ${begun} begun`)
        }
      },
    ),
    { numRuns: 300 },
  )
})

test('a peer that talks of too many groups is refused', () => {
  const pace = new Pace()
  assert.throws(
    () => {
      for (let group = 0; group < 100_000; group++) pace.heard(RECEIVER, `group ${group}`, 0)
    },
    { code: 'rate-exceeded' },
  )
})

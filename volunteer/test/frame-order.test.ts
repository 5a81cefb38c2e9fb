// Frames of a link with several connections: numbered by the sender, put in order by the receiver, bounded.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { costOf, FrameNumbers, FrameOrder, MOST_AHEAD_BYTES, stepsTo } from '../src/link/frame-order.ts'

const frame = (mark: number, bytes = 100): Uint8Array => new Uint8Array(bytes).fill(mark)

/** The message of a frame with this number. */
function numbered(frame: Uint8Array, number: number): Uint8Array {
  const message = new FrameNumbers().messageOf(frame)
  new DataView(message.buffer).setUint32(0, number, true)
  return message
}

const marksOf = (frames: readonly Uint8Array[]): number[] => frames.map(([mark = -1]) => mark)

test('frames that come in any order are handed on in that of their numbers, each once', () => {
  const order = new FrameOrder()
  const came = [2, 1, 0, 3, 6, 5, 7, 4]
  const handedOn = came.map((number) => marksOf(order.arrived(numbered(frame(number), number))))
  assert.deepEqual(handedOn, [[], [], [0, 1, 2], [3], [], [], [], [4, 5, 6, 7]])
  assert.equal(order.next, 8)
})

test('frames are numbered from 0 on, in memory that the next one uses again', () => {
  const numbers = new FrameNumbers()
  const lengths = [100, 200, 50]
  for (const [number, bytes] of lengths.entries()) {
    const message = numbers.messageOf(frame(7, bytes))
    assert.equal(new DataView(message.buffer).getUint32(0, true), number)
    assert.deepEqual(message.subarray(4), frame(7, bytes))
  }
  assert.equal(stepsTo(1, 2 ** 32 - 1), 2)
})

const refused: readonly [what: string, numbers: readonly number[], bytes: number, code: string][] = [
  ['comes twice', [3, 3], 100, 'message-malformed'],
  ['was handed on', [0, 0], 100, 'message-malformed'],
  ['is far ahead', [1_000_000], 100, 'message-malformed'],
  ['is more than may wait', Array.from({ length: 50 }, (_, i) => i + 1), 100_000, 'message-too-large'],
  ['is one of thousands of short ones', Array.from({ length: 5000 }, (_, i) => i + 1), 1, 'message-'],
]
for (const [what, numbers, bytes, code] of refused)
  test(`threat 33: a frame that ${what} is refused`, () => {
    const order = new FrameOrder()
    let waiting = 0
    assert.throws(
      () => {
        for (const number of numbers) {
          order.arrived(numbered(frame(0, bytes), number))
          waiting += costOf(frame(0, bytes))
        }
      },
      (error: { code: string }) => error.code.startsWith(code),
    )
    assert.ok(waiting <= MOST_AHEAD_BYTES)
  })

test('a message without room for a frame is refused', () => {
  assert.throws(() => new FrameOrder().arrived(new Uint8Array(3)), { code: 'message-malformed' })
})

// When a round ends before it is through: in time for its version, when its member leaves, and when its data does not
// come.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Clock, trainingBlock } from '@starling-grid/protocol'
import { HOPE_PART, ROUND_PART, RoundCut } from '../src/async/round-cut.ts'

const LEASE_MS = 60_000
const ONE = { blocks: [trainingBlock(0, 1)] }
const NONE = { blocks: [] }

/** Timers that pass when the test says so. */
function setUp(isLoading = () => false) {
  const timers = new Map<number, () => void>()
  const timer: Clock['timer'] = (ms, act) => {
    timers.set(ms, act)
    return () => timers.delete(ms)
  }
  const leaving = new AbortController()
  const cut = new RoundCut({ timer } as Clock, { deadlineMs: LEASE_MS, leaving: leaving.signal, isLoading })
  const pass = (part: number): void => timers.get(part * LEASE_MS)?.()
  return { cut, leaving, pass, timers }
}

test('a round that is due ends with the inner steps that it made', () => {
  const { cut, pass } = setUp()
  cut.learned(ONE)
  assert.equal(cut.signal.aborted, false)
  pass(ROUND_PART)
  assert.equal(cut.signal.aborted, true)
})

test('a round that is due makes its first inner step in any case', () => {
  const { cut, pass } = setUp()
  cut.learned(NONE)
  pass(ROUND_PART)
  pass(HOPE_PART)
  assert.equal(cut.signal.aborted, false, 'a slow machine')
  cut.learned(ONE)
  assert.equal(cut.signal.aborted, true)
})

test('a round whose data is still on its way is given up before its lease ends', () => {
  const { cut, pass } = setUp(() => true)
  pass(ROUND_PART)
  assert.equal(cut.signal.aborted, false)
  pass(HOPE_PART)
  assert.equal(cut.signal.aborted, true)
})

test('a round of a member that leaves ends at once, and one that is over leaves no timer', () => {
  const { cut, leaving, timers } = setUp()
  leaving.abort()
  assert.equal(cut.signal.aborted, true)
  const over = setUp()
  over.cut.end()
  over.leaving.abort()
  assert.deepEqual([over.cut.signal.aborted, over.timers.size, timers.size], [false, 0, 2])
})

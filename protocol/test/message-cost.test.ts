// What one message may cost the coordinator's event loop, measured against a plain parse of the same text in the same
// moment. A busy machine slows both.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeToCoordinator, isGridError, MAX_MESSAGE_BYTES } from '@starling-grid/protocol'
import { MAX_PLAIN_MESSAGE_BYTES, MAX_PLAIN_MESSAGE_VALUES } from '../src/limits.ts'
import { TO_COORDINATOR } from '../src/messages.ts'

/** Times a plain parse of the largest claim, which takes 2 ms on a quiet machine, that any message may cost. */
const MOST_TIMES = 25
const ID = 'a'.repeat(64)
const record = (v: number, blocks: number): object => ({
  v,
  generation: 1,
  modeEpoch: 0,
  kind: 'ring',
  blocks: Array.from({ length: blocks }, (_, i) => `0:${i}`),
  samples: 1,
  targets: 1,
  lossSum: 1,
  correct: 0,
  gradDigest: ID,
})
const state = (claim: unknown): string => JSON.stringify({ type: 'state', job: 'a', fence: 1, generation: 5, claim })
const claimOf = (records: readonly object[]): string => state({ base: { v: 0, id: ID }, records })
const LARGEST = claimOf(Array.from({ length: 128 }, (_, i) => record(i + 1, 240)))
const many = (count: number, value: unknown): Record<string, unknown> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, value]))

/** µs of CPU, the least of some tries. */
function cost(work: () => unknown): number {
  const once = (): number => {
    const before = process.cpuUsage()
    work()
    const { user, system } = process.cpuUsage(before)
    return user + system
  }
  once() // compiled
  return Math.min(...Array.from({ length: 7 }, once))
}

function outcome(text: string): string {
  try {
    decodeToCoordinator(text)
    return 'taken'
  } catch (error) {
    if (isGridError(error)) return error.code
    throw error
  }
}

test('threat 24: the largest claim, and what is made to cost more, takes a small multiple of parsing its text', () => {
  assert.ok(LARGEST.length > 0.9 * MAX_MESSAGE_BYTES && LARGEST.length <= MAX_MESSAGE_BYTES)
  assert.equal(outcome(LARGEST), 'taken')
  const bound =
    MOST_TIMES *
    Math.max(
      1000,
      cost(() => JSON.parse(LARGEST)),
    )
  const hostile = {
    LARGEST,
    'records of nothing': claimOf(Array.from({ length: 20_000 }, () => ({}))),
    'one wrong block at the end': LARGEST.replace(/"0:239"(?!.*"0:239")/, '"0:0239"'),
    'unknown keys': state(many(12_000, 1)),
    'unknown keys with escapes': state(many(12_000, '\u0001')),
    'a list of objects': state(Array.from({ length: 60_000 }, () => 0)),
  }
  for (const [name, text] of Object.entries(hostile)) {
    assert.ok(text.length <= MAX_MESSAGE_BYTES, name)
    assert.equal(outcome(text), text === LARGEST ? 'taken' : 'message-malformed', name)
    const took = cost(() => outcome(text))
    assert.ok(took < bound, `${name}: ${took} µs, allowed are ${bound}`)
  }
})

test('threat 24: a message of any other kind is refused for its size before it is parsed', () => {
  for (const type of [...Object.keys(TO_COORDINATOR), 'unknown']) {
    if (type === 'state') continue
    const long = JSON.stringify({ type, x: 'x'.repeat(MAX_PLAIN_MESSAGE_BYTES) })
    const wide = JSON.stringify({ type, x: Array.from({ length: MAX_PLAIN_MESSAGE_VALUES }, () => 0) })
    for (const text of [long, wide]) assert.equal(outcome(text), 'message-too-large', type)
  }
  assert.equal(outcome(`{"x":${'0'.repeat(MAX_PLAIN_MESSAGE_BYTES)},"type":"state"}`), 'message-too-large')
  const held = { type: 'held', job: 'a', fence: 1, generation: 5, record: record(1, 1024) }
  assert.equal(outcome(JSON.stringify(held)), 'taken')
})

test('threat 12: keys of the prototype are refused in every spelling', () => {
  for (const key of ['__proto__', 'constructor', 'prototype', String.raw`\u005f_proto__`, String.raw`constructo\u0072`])
    assert.equal(outcome(`{"type":"leave","${key}":1}`), 'message-malformed', key)
})

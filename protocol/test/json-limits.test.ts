// What a text from the network may cost before it is a value.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isGridError, parseJson } from '@starling-grid/protocol'
import { MAX_JSON_DEPTH, MAX_JSON_VALUES, measureJson } from '../src/schema.ts'

const BYTES = 512 * 1024

function refusal(text: string): string {
  try {
    parseJson(text, BYTES, 'the text')
  } catch (error) {
    if (isGridError(error)) return error.message
    throw error
  }
  return 'taken'
}

test('threat 13: JSON is refused for its depth and its number of values before it is parsed', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)
  assert.equal(refusal(nested(MAX_JSON_DEPTH)), 'taken')
  assert.match(refusal(nested(MAX_JSON_DEPTH + 1)), /levels deep, got 33/)
  assert.match(refusal('['.repeat(100_000)), /levels deep, got 100000/)
  assert.match(refusal('{"a":'.repeat(100_000)), /levels deep/)
  assert.equal(refusal(`[${'0,'.repeat(MAX_JSON_VALUES - 2)}0]`), 'taken')
  assert.match(refusal(`[${'0,'.repeat(MAX_JSON_VALUES - 1)}0]`), /values, got 65537/)
  assert.match(refusal(`[${'[],'.repeat(100_000)}[]]`), /values/)
})

test('brackets and commas inside strings, after escaped quotes too, do not count', () => {
  assert.deepEqual(measureJson(String.raw`{"a":"[{,\"[[","b":["\\",["]"]]}`), { depth: 3, values: 6 })
  assert.deepEqual(parseJson(String.raw`{"a":"[[\"[","b":[1,[2]]}`, BYTES, 'the text'), { a: '[["[', b: [1, [2]] })
})

test('threat 14: a text of quotes and backslashes costs no more than any other text of its length', () => {
  const plain = `"${'a'.repeat(BYTES - 2)}"`
  const hostile = [String.raw`"\"`, String.raw`\"`, '"', '""', String.raw`"\\`, '"a":'].map((part) =>
    part.repeat(BYTES / part.length),
  )
  const cost = (text: string): number =>
    Math.min(
      ...Array.from({ length: 5 }, () => {
        const { user, system } = process.cpuUsage()
        measureJson(text)
        const used = process.cpuUsage({ user, system })
        return used.user + used.system
      }),
    )
  cost(plain) // compiled
  const bound = 20 * Math.max(cost(plain), 1000) // µs
  for (const text of hostile)
    assert.ok(cost(text) < bound, `${JSON.stringify(text.slice(0, 8))}: ${cost(text)} µs, plain text ${cost(plain)} µs`)
})

// docs/PROTOCOL.md says what the schemas say, and stays short.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { protocolPage, renewed } from './protocol-page.ts'

test('the tables of docs/PROTOCOL.md are those of the schemas; `npm run docs` writes them', () => {
  assert.equal(protocolPage(), renewed(protocolPage()))
})

test('docs/PROTOCOL.md has at most 2,500 words', () => {
  const words = protocolPage().split(/\s+/).filter(Boolean).length
  assert.ok(words <= 2500, `expected at most 2,500 words, got ${words}; move text to another page`)
})

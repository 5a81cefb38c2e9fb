// Suites of large models, in sizes that measure nothing: they compute, and say what was compared.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt2Suite } from '../src/gpt2.ts'
import { hostSuite } from '../src/host.ts'
import type { SuiteOptions } from '../src/suite.ts'

const SHORT: SuiteOptions = {
  adapter: undefined,
  executor: 'wasm',
  in: 'node',
  short: true,
  rounds: 2,
  log: () => undefined,
}

test("the host's part of a step stands beside each pass apart and its aim", async () => {
  const [row] = await hostSuite(SHORT)
  assert.ok(row && row.ours > 0)
  assert.equal(row.unit, 'ms a step')
  assert.ok((row.peers['each pass apart'] ?? 0) > 0)
  assert.equal(row.peers['aim'], 200)
})

test("a step of GPT-2's form names its adapter and the memory that it took", async () => {
  const [row] = await gpt2Suite(SHORT)
  assert.ok(row && row.ours > 0)
  assert.match(row.adapter, /WebAssembly/)
  assert.ok((row.counts?.['MB of memory at most'] ?? 0) > 10)
})

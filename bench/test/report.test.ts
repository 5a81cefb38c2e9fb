import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { suiteText } from '../src/report.ts'
import { compared, mean } from '../src/row.ts'

const machine = { cpu: 'a CPU', cores: 2, os: 'an OS', node: 'v20', load: 0 }

function tableOf(ours: readonly number[], reach: number): string {
  const row = compared({ name: 'a rate', adapter: 'none', unit: 'MB/s', reach: { peer: 'raw', ratio: reach } }, ours, {
    raw: [100, 100, 100],
  })
  return suiteText('suite', [{ date: '2026-01-31', machine, in: 'node', rounds: 3, rows: [row] }])
}

test('a table says that a row reaches what is wanted of it, or by how much it misses', () => {
  assert.match(
    tableOf([80, 90, 500], 0.85),
    /\| 90 MB\/s \| 80 … 500 \| raw 100 \(\*\*0\.9×\*\*\) \| 0\.85× raw: reached \|/,
  )
  assert.match(tableOf([80, 81, 500], 0.9), /0\.9× raw: \*\*missed\*\* by 10 % \|/)
})

test('of losses the mean counts, and a lower one is the better', () => {
  const row = compared(
    { name: 'a loss', adapter: 'none', unit: 'nats', better: 'less' },
    [1, 1, 4],
    { other: [3, 3, 3] },
    mean,
  )
  assert.deepEqual([row.ours, row.min, row.max, row.ratio['other']], [2, 1, 4, 1.5])
})

test('docs/BENCHMARKS.md is a summary of at most 1,000 words', () => {
  const page = readFileSync(new URL('../../docs/BENCHMARKS.md', import.meta.url), 'utf8')
  const words = page.split(/\s+/).filter(Boolean).length
  assert.ok(words <= 1000, `expected at most 1,000 words, got ${words}; move details to bench/results/README.md`)
})

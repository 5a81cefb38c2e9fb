// Metrics from sums: those of parts, pooled, are those of the whole.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isImpossible, metricsOf, pooled, type Tally } from '../src/tally.ts'

function valuesOf(wanted: readonly number[], got: readonly number[]) {
  const errors = wanted.map((value, i) => (got[i] ?? 0) - value)
  const sum = (numbers: readonly number[]): number => numbers.reduce((all, value) => all + value, 0)
  const tally: Tally = {
    of: 'values',
    errors: sum(errors.map(Math.abs)),
    totals: [sum(wanted)],
    squares: [sum(wanted.map((value) => value * value))],
  }
  const size = wanted.length
  return { tally, base: { samples: size, targets: size, correct: 0, lossSum: sum(errors.map((error) => error ** 2)) } }
}

test('MAE and R² of two blocks together are those of all samples', () => {
  const [wanted, got] = [
    [1, 2, 4, 8, 16],
    [1.5, 2, 3, 9, 14],
  ]
  const [a, b] = [valuesOf(wanted.slice(0, 2), got.slice(0, 2)), valuesOf(wanted.slice(2), got.slice(2))]
  const tally = pooled(a.tally, b.tally)
  assert.ok(tally)
  const base = { samples: 5, targets: 5, correct: 0, lossSum: a.base.lossSum + b.base.lossSum }
  const [mae, r2] = metricsOf(tally, base)
  const mean = 31 / 5
  const spread = wanted.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  assert.deepEqual([mae?.name, r2?.name], ['MAE', 'R²'])
  assert.ok(Math.abs((mae?.value ?? 0) - 4.5 / 5) < 1e-12)
  assert.ok(Math.abs((r2?.value ?? 0) - (1 - 6.25 / spread)) < 1e-12)
})

test('each kind of targets has its metrics, and what is not defined is left out', () => {
  const base = { samples: 4, targets: 4, correct: 2, lossSum: 4 * Math.log(7) }
  const shown = (tally: Tally) => metricsOf(tally, base).map(({ name, value }) => [name, Number(value.toFixed(6))])
  assert.deepEqual(shown({ of: 'classes', top: 3 }), [
    ['top-5', 0.75],
    ['accuracy', 0.5],
  ])
  assert.deepEqual(shown({ of: 'tokens' }), [
    ['accuracy', 0.5],
    ['perplexity', 7],
  ])
  assert.deepEqual(shown({ of: 'labels', found: 2, wrong: 1, missed: 1 }), [
    ['accuracy', 0.5],
    ['F1', 0.666667],
  ])
  assert.deepEqual(shown({ of: 'labels', found: 0, wrong: 0, missed: 0 }), [['accuracy', 0.5]])
  const same: Tally = { of: 'values', errors: 0, totals: [4], squares: [4] }
  assert.deepEqual(shown(same), [['MAE', 0]], 'equal targets have no R²')
})

test('sums of different kinds do not add up, and impossible ones are known', () => {
  assert.equal(pooled({ of: 'tokens' }, { of: 'classes', top: 1 }), undefined)
  const base = { samples: 2, targets: 4, correct: 1, lossSum: 1 }
  assert.ok(isImpossible({ of: 'classes', top: 5 }, base))
  assert.ok(isImpossible({ of: 'labels', found: 4, wrong: 1, missed: 0 }, base))
  assert.ok(isImpossible({ of: 'values', errors: 1, totals: [1], squares: [1] }, base), 'two columns are wanted')
  assert.ok(!isImpossible({ of: 'values', errors: 1, totals: [1, 1], squares: [1, 1] }, base))
})

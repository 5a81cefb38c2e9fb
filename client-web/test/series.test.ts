import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Metric, StepPoint } from '@starling-grid/protocol'
import { csvOf } from '../src/dashboard/csv.ts'
import { metricsShown } from '../src/dashboard/metric.ts'
import { type Series, seriesOf, smoothed, xValues } from '../src/dashboard/series.ts'
import { DEFAULT_VIEW, formatView, parseView, withScale } from '../src/dashboard/view-state.ts'
import { runAt, STARTED_AT, stepPoint } from './fixture-run.ts'

const steps = Array.from({ length: 200 }, (_, i) => stepPoint(i + 1))
const LINEAR = { logX: false, logY: false }

function lossSeries(points: readonly StepPoint[], scale = LINEAR): Series {
  return seriesOf(
    { steps: points, value: (point) => point.loss, validations: [], startedAt: STARTED_AT },
    { x: 'step', smoothing: 0.9, scale },
  )
}

test('smoothing gives the same curve for two samplings of one series', () => {
  const curve = (x: number): number => 2 * Math.exp(-x / 300) + 0.1
  const dense = Array.from({ length: 2001 }, (_, i) => i / 2)
  const sparse = dense.filter((_, i) => i % 4 === 0)
  const denseLine = smoothed(dense, dense.map(curve), 0.9)
  const sparseLine = smoothed(sparse, sparse.map(curve), 0.9)
  for (let i = 10; i < sparse.length; i++) {
    const [a, b] = [sparseLine[i] ?? NaN, denseLine[i * 4] ?? NaN]
    assert.ok(Math.abs(a - b) / b < 0.01, `at ${sparse[i]}: ${a} and ${b}`)
  }
})

test('a step that is not a number is marked and leaves the smooth line whole around it', () => {
  const series = lossSeries(steps.map((point) => (point.v === 50 ? { ...point, loss: NaN } : point)))
  assert.deepEqual(series.missing, [50])
  assert.equal(series.raw[49], null)
  assert.ok(Number.isFinite(series.smooth[50]))
})

test('a logarithmic scale counts what it cannot show', () => {
  const zeros = steps.map((point) => (point.v <= 3 ? { ...point, loss: 0 } : point))
  assert.equal(lossSeries(zeros, { logX: false, logY: true }).hidden, 3)
  assert.equal(lossSeries(zeros).hidden, 0)
})

test('samples and time are counted from the start of the run', () => {
  assert.deepEqual(xValues(steps, 'samples', STARTED_AT).slice(0, 2), [512, 1024])
  assert.deepEqual(xValues(steps, 'time', STARTED_AT).slice(0, 2), [0.85, 1.7])
})

test('each validation stands at the step whose version it judged', () => {
  const validations = [{ v: 16, epoch: 0, accuracy: 0.5, loss: 1, samples: 10, confirmed: true, at: 0 }]
  const series = seriesOf(
    { steps, value: (point) => point.accuracy, validations, mark: (point) => point.accuracy, startedAt: STARTED_AT },
    { x: 'step', smoothing: 0, scale: LINEAR },
  )
  assert.equal(series.marks[15], 0.5)
  assert.equal(series.marks.filter((mark) => mark !== null).length, 1)
})

test('the file of a job of values has its metrics and no accuracy', () => {
  const metrics = metricsShown({ ...runAt(330).job, metrics: ['loss', 'MAE', 'R2'] })
  const validation = { v: 2, epoch: 0, accuracy: 0, loss: 1, samples: 10, confirmed: true, at: 0 }
  const validations = [{ ...validation, metrics: [{ name: 'R²' as const, value: 0.75 }] }]
  const [head = '', first = '', second = ''] = csvOf({ steps: steps.slice(0, 2), validations, metrics }).split('\n')
  assert.equal(head, 'step,loss,samples,mode,at_ms,validation_loss,validation_R2,validation_MAE')
  assert.match(first, /^1,.*,ring,\d+,,,$/)
  assert.match(second, /,1,0\.75,$/)
})

test('perplexity is drawn of steps, too, and top-5 of validations alone', () => {
  const of = (metrics: Metric[]) => metricsShown({ ...runAt(330).job, metrics, stop: {} })
  const [perplexity] = of(['loss', 'accuracy', 'perplexity'])
  assert.equal(perplexity?.metric, 'perplexity')
  assert.equal(perplexity.ofStep?.(stepPoint(5)), Math.exp(stepPoint(5).loss))
  const ofClasses = of(['loss', 'accuracy', 'top-5'])
  assert.deepEqual(
    ofClasses.map(({ title, ofStep }) => [title, ofStep !== undefined]),
    [
      ['Accuracy', true],
      ['Top-5', false],
    ],
  )
})

test('the address says how the charts are looked at, and the default view leaves it clean', () => {
  assert.equal(formatView(DEFAULT_VIEW), '')
  const view = withScale({ ...DEFAULT_VIEW, x: 'time', smoothing: 0.5 }, 'loss', { logX: true, logY: true })
  assert.deepEqual(parseView(formatView(view)), view)
  assert.deepEqual(parseView('?x=nonsense&smoothing=7&loss=up'), DEFAULT_VIEW)
})

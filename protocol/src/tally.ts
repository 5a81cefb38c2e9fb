// What members count of a validation block beside its loss. These are sums, so that those of blocks add up exactly. The
// metrics follow from the sums over all blocks. Any of them may judge a version.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { Count, FiniteNumber, type ReadonlyOf, strict } from './schema.ts'

/** Columns of values whose sums a message has. */
export const MAX_TALLY_COLUMNS = 256
/** Guesses among which top-5 looks for the class. */
export const TOP = 5

const Columns = Type.Array(FiniteNumber, { minItems: 1, maxItems: MAX_TALLY_COLUMNS })

export const TallySchema = Type.Union([
  /** of classes: targets among the five likeliest */
  strict({ of: Type.Literal('classes'), top: Count }),
  /** of values: Σ |error| over all columns; of each column Σ target and Σ target² */
  strict({ of: Type.Literal('values'), errors: FiniteNumber, totals: Columns, squares: Columns }),
  /** of labels: set and found; not set and found; set and not found */
  strict({ of: Type.Literal('labels'), found: Count, wrong: Count, missed: Count }),
  /** of tokens nothing beside the loss */
  strict({ of: Type.Literal('tokens') }),
])
export type Tally = Static<typeof TallySchema>

/** What is always counted. */
export interface TallyBase {
  readonly samples: number
  readonly targets: number
  readonly correct: number
  readonly lossSum: number
}

interface MetricRule {
  /** what people read; job files write the key */
  readonly name: NamedMetric['name'] | 'loss'
  /** lower is better; otherwise higher */
  readonly falls: boolean
  /** as a percentage of all that could be right */
  readonly isPart?: true
  /** no value is better */
  readonly most?: 1
}

export const MetricSchema = Type.Union([
  Type.Literal('loss'),
  Type.Literal('accuracy'),
  Type.Literal('top-5'),
  Type.Literal('perplexity'),
  Type.Literal('MAE'),
  Type.Literal('R2'),
  Type.Literal('F1'),
])
/** What judges a version, as a job file writes it. */
export type Metric = Static<typeof MetricSchema>

export const NamedMetricSchema = Type.Object({
  name: Type.Union([
    Type.Literal('accuracy'),
    Type.Literal('top-5'),
    Type.Literal('perplexity'),
    Type.Literal('MAE'),
    Type.Literal('R²'),
    Type.Literal('F1'),
  ]),
  value: FiniteNumber,
})
export type NamedMetric = ReadonlyOf<typeof NamedMetricSchema>

/** Each metric, and which way it gets better. */
export const METRICS: Readonly<Record<Metric, MetricRule>> = {
  loss: { name: 'loss', falls: true },
  accuracy: { name: 'accuracy', falls: false, isPart: true, most: 1 },
  'top-5': { name: 'top-5', falls: false, isPart: true, most: 1 },
  perplexity: { name: 'perplexity', falls: true },
  MAE: { name: 'MAE', falls: true },
  R2: { name: 'R²', falls: false, most: 1 },
  F1: { name: 'F1', falls: false, most: 1 },
}

/** What a validation measured, over its targets. */
export interface Measurements {
  readonly loss: number
  readonly accuracy: number
  /** beside these two; absent where blocks have no sums for them */
  readonly metrics?: readonly NamedMetric[]
}

/** NaN where the validation did not measure it. */
export function measuredValue({ loss, accuracy, metrics = [] }: Measurements, metric: Metric): number {
  if (metric === 'loss') return loss
  if (metric === 'accuracy') return accuracy
  const { name } = METRICS[metric]
  return metrics.find((one) => one.name === name)?.value ?? Number.NaN
}

type MetricName = MetricRule['name']

/** "97.1 %", "0.9312" */
export function metricValueText(metric: MetricName, value: number): string {
  const isPart = Object.values(METRICS).some((rule) => rule.name === metric && rule.isPart === true)
  return isPart ? `${(100 * value).toFixed(1)} %` : value.toPrecision(4)
}

/** "accuracy 97.1 %", "R² 0.9312": as pages and commands say it. */
export function metricText(metric: MetricName, value: number): string {
  return `${metric} ${metricValueText(metric, value)}`
}

/** Metrics beside the loss that targets of a kind have: the more telling one last. */
export const METRICS_OF_TARGETS: Readonly<Record<Tally['of'], readonly Metric[]>> = {
  classes: ['top-5', 'accuracy'],
  values: ['MAE', 'R2'],
  labels: ['accuracy', 'F1'],
  tokens: ['accuracy', 'perplexity'],
}

/** Of two blocks of one dataset. Undefined where they are of different kinds. */
export function pooled(a: Tally, b: Tally): Tally | undefined {
  if (a.of === 'tokens' && b.of === 'tokens') return a
  if (a.of === 'classes' && b.of === 'classes') return { of: 'classes', top: a.top + b.top }
  if (a.of === 'labels' && b.of === 'labels')
    return { of: 'labels', found: a.found + b.found, wrong: a.wrong + b.wrong, missed: a.missed + b.missed }
  if (a.of !== 'values' || b.of !== 'values' || a.totals.length !== b.totals.length) return undefined
  const added = (x: readonly number[], y: readonly number[]) => x.map((value, i) => value + (y[i] ?? 0))
  const [totals, squares] = [added(a.totals, b.totals), added(a.squares, b.squares)]
  return { of: 'values', errors: a.errors + b.errors, totals, squares }
}

/** Whether no honest member counts so. */
export function isImpossible(tally: Tally, { samples, targets, correct }: TallyBase): boolean {
  switch (tally.of) {
    case 'classes':
      return tally.top < correct || tally.top > targets
    case 'values':
      return (
        tally.errors < 0 ||
        tally.totals.length !== tally.squares.length ||
        tally.totals.length * samples !== targets ||
        tally.squares.some((square) => square < 0)
      )
    case 'labels':
      return tally.found + tally.wrong + tally.missed > targets
    case 'tokens':
      return false
    default:
      return tally satisfies never
  }
}

/** Numbers of a tally, to compare what two members counted. */
export function numbersOf(tally: Tally): readonly number[] {
  switch (tally.of) {
    case 'classes':
      return [tally.top]
    case 'values':
      return [tally.errors, ...tally.totals, ...tally.squares]
    case 'labels':
      return [tally.found, tally.wrong, tally.missed]
    case 'tokens':
      return []
    default:
      return tally satisfies never
  }
}

/** Over all blocks: the more telling one last. Those that are not defined, such as R² of one value, are left out. */
export function metricsOf(tally: Tally, base: TallyBase): NamedMetric[] {
  const values = metricValues(tally, base)
  const named = METRICS_OF_TARGETS[tally.of].flatMap((metric): NamedMetric[] => {
    const { name } = METRICS[metric]
    return name === 'loss' ? [] : [{ name, value: values[metric] ?? Number.NaN }]
  })
  return named.filter(({ value }) => Number.isFinite(value))
}

function metricValues(
  tally: Tally,
  { samples, targets, correct, lossSum }: TallyBase,
): Partial<Record<Metric, number>> {
  const accuracy = correct / targets
  switch (tally.of) {
    case 'classes':
      return { 'top-5': tally.top / targets, accuracy }
    case 'values': {
      // the loss of values is their squared error
      const spread = tally.squares.reduce((sum, square, i) => sum + square - (tally.totals[i] ?? 0) ** 2 / samples, 0)
      return { MAE: tally.errors / targets, R2: spread > 0 ? 1 - lossSum / spread : Number.NaN }
    }
    case 'labels':
      return { accuracy, F1: (2 * tally.found) / (2 * tally.found + tally.wrong + tally.missed) }
    case 'tokens':
      return { accuracy, perplexity: Math.exp(lossSum / targets) }
    default:
      return tally satisfies never
  }
}

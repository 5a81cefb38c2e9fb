// What members count of a validation block beside its loss. These are sums, so that those of blocks add up exactly. The
// metrics follow from the sums over all blocks.
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
  return metricValues(tally, base).filter(({ value }) => Number.isFinite(value))
}

function metricValues(tally: Tally, { samples, targets, correct, lossSum }: TallyBase): NamedMetric[] {
  const accuracy: NamedMetric = { name: 'accuracy', value: correct / targets }
  switch (tally.of) {
    case 'classes':
      return [{ name: 'top-5', value: tally.top / targets }, accuracy]
    case 'values': {
      // the loss of values is their squared error
      const spread = tally.squares.reduce((sum, square, i) => sum + square - (tally.totals[i] ?? 0) ** 2 / samples, 0)
      const r2: NamedMetric = { name: 'R²', value: spread > 0 ? 1 - lossSum / spread : Number.NaN }
      return [{ name: 'MAE', value: tally.errors / targets }, r2]
    }
    case 'labels':
      return [accuracy, { name: 'F1', value: (2 * tally.found) / (2 * tally.found + tally.wrong + tally.missed) }]
    case 'tokens':
      return [accuracy, { name: 'perplexity', value: Math.exp(lossSum / targets) }]
    default:
      return tally satisfies never
  }
}

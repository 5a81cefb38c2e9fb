// Points of a run → lines of a chart. Pure. Nothing is dropped in silence: what cannot be drawn is counted.
import type { StepPoint, ValidationPoint } from '@starling-grid/protocol'
import type { ChartScale, XAxis } from './view-state.ts'

export interface Series {
  /** ascending */
  readonly x: readonly number[]
  /** as measured; null where it cannot be drawn */
  readonly raw: readonly (number | null)[]
  readonly smooth: readonly (number | null)[]
  /** validation points, null where there is none; empty when the chart has none */
  readonly marks: readonly (number | null)[]
  /** x of values that are no finite numbers */
  readonly missing: readonly number[]
  /** values ≤ 0 that a logarithmic scale cannot show */
  readonly hidden: number
}

export interface SeriesInput {
  readonly steps: readonly StepPoint[]
  /** absent: steps do not measure it, and the line joins the validations */
  readonly value?: ((point: StepPoint) => number) | undefined
  readonly validations: readonly ValidationPoint[]
  /** of a validation; absent where there are none */
  readonly mark?: (point: ValidationPoint) => number
  /** ms since the epoch: zero of the time axis */
  readonly startedAt: number
}

/**
 * Smoothing forgets by the factor `smoothing` per this part of the width, so that it looks the same for short and long
 * runs.
 */
const PARTS_OF_WIDTH = 600

export function seriesOf(
  input: SeriesInput,
  view: { readonly x: XAxis; readonly smoothing: number; readonly scale: ChartScale },
): Series {
  if (input.value === undefined) return validatedAlone(input, view)
  const { steps, validations } = input
  const allX = xValues(steps, view.x, input.startedAt)
  const from = view.scale.logX ? allX.findIndex((x) => x > 0) : 0
  const x = from <= 0 ? allX : allX.slice(from)
  const shown = from <= 0 ? steps : steps.slice(from)
  const values = shown.map(input.value)
  const smooth = smoothed(x, values, view.smoothing)
  const drawable = (value: number | null): number | null =>
    value !== null && Number.isFinite(value) && (!view.scale.logY || value > 0) ? value : null
  return {
    x,
    raw: values.map(drawable),
    smooth: smooth.map(drawable),
    marks: validations.length === 0 ? [] : marksOf(shown, validations, input.mark).map(drawable),
    missing: x.filter((_, i) => !Number.isFinite(values[i])),
    hidden: Math.max(0, from) + (view.scale.logY ? values.filter((value) => value <= 0).length : 0),
  }
}

/** Of steps whose versions were validated, and no others. */
function validatedAlone(
  { steps, validations, mark, startedAt }: SeriesInput,
  view: { readonly x: XAxis; readonly scale: ChartScale },
): Series {
  const marks = marksOf(steps, validations, mark)
  const allX = xValues(steps, view.x, startedAt)
  const places = steps.flatMap((_, i) => (marks[i] === null || (view.scale.logX && (allX[i] ?? 0) <= 0) ? [] : [i]))
  const values = places.map((place) => marks[place] ?? Number.NaN)
  const x = places.map((place) => allX[place] ?? 0)
  const shown = values.map((value) => (Number.isFinite(value) && (!view.scale.logY || value > 0) ? value : null))
  return {
    x,
    raw: shown.map(() => null),
    smooth: shown.map(() => null),
    marks: shown,
    missing: x.filter((_, i) => !Number.isFinite(values[i])),
    hidden: view.scale.logY ? values.filter((value) => value <= 0).length : 0,
  }
}

export function xValues(steps: readonly StepPoint[], axis: XAxis, startedAt: number): number[] {
  switch (axis) {
    case 'step':
      return steps.map((point) => point.v)
    case 'time':
      return steps.map((point) => (point.at - startedAt) / 1000)
    case 'samples': {
      let total = 0
      return steps.map((point) => {
        total += point.samples
        return total
      })
    }
    default:
      return axis satisfies never
  }
}

/**
 * Moving average that weighs by distance on the x axis, not by count: the same curve sampled twice as densely looks the
 * same. Values that are not finite are passed over.
 */
export function smoothed(x: readonly number[], values: readonly number[], smoothing: number): (number | null)[] {
  const width = (x.at(-1) ?? 0) - (x[0] ?? 0)
  if (smoothing <= 0 || width <= 0) return values.map((value) => (Number.isFinite(value) ? value : null))
  const decay = (-Math.log(smoothing) * PARTS_OF_WIDTH) / width
  let [sum, weight, last] = [0, 0, (x[0] ?? 0) - width / values.length]
  return values.map((value, i) => {
    if (!Number.isFinite(value)) return null
    const x0 = x[i] ?? last
    const keep = Math.exp(-decay * Math.max(0, x0 - last))
    last = x0
    sum = keep * sum + (1 - keep) * value
    weight = keep * weight + (1 - keep)
    return weight > 0 ? sum / weight : value
  })
}

/** Each validation at the step whose version it judged. */
function marksOf(
  steps: readonly StepPoint[],
  validations: readonly ValidationPoint[],
  mark: NonNullable<SeriesInput['mark']> = () => Number.NaN,
): (number | null)[] {
  const marks: (number | null)[] = steps.map(() => null)
  for (const point of validations) {
    const index = lastIndexUpTo(steps, point.v)
    if (index >= 0) marks[index] = mark(point)
  }
  return marks
}

/** Index of the last step with v ≤ `v`, or −1; steps ascend by v. */
function lastIndexUpTo(steps: readonly StepPoint[], v: number): number {
  let [low, high] = [0, steps.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((steps[middle]?.v ?? Infinity) <= v) low = middle + 1
    else high = middle
  }
  return low - 1
}

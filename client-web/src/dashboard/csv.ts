// A run's numbers as a file. Pure.
import type { StepPoint, ValidationPoint } from '@starling-grid/protocol'
import type { ChartMetric } from './metric.ts'

export interface CsvParts {
  readonly steps: readonly StepPoint[]
  readonly validations: readonly ValidationPoint[]
  /** of the job */
  readonly metrics: readonly ChartMetric[]
}

/** Every step, with the metrics that the job has. */
export function csvOf({ steps, validations, metrics }: CsvParts): string {
  const validated = new Map(validations.map((point) => [point.v, point]))
  const ofSteps = metrics.filter(({ ofStep }) => ofStep !== undefined)
  const head = [
    ...['step', 'loss', ...ofSteps.map(({ metric }) => metric), 'samples', 'mode', 'at_ms', 'validation_loss'],
    ...metrics.map(({ metric }) => `validation_${metric}`),
  ]
  const lines = steps.map((point) => {
    const validation = validated.get(point.v)
    return [
      ...[point.v, point.loss, ...ofSteps.map(({ ofStep }) => ofStep?.(point) ?? '')],
      ...[point.samples, point.mode, point.at, validation?.loss ?? ''],
      ...metrics.map(({ ofValidation }) => (validation === undefined ? '' : numberText(ofValidation(validation)))),
    ].join(',')
  })
  return [head.join(','), ...lines, ''].join('\n')
}

/** Empty where a validation does not define it. */
function numberText(value: number): string {
  return Number.isNaN(value) ? '' : String(value)
}

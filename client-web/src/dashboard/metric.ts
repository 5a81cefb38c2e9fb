// Which metric a chart of validations shows: the job's own, by the kind of its targets. Pure.
import {
  type Metric,
  METRICS,
  METRICS_OF_TARGETS,
  metricValueText,
  measuredValue,
  type RunView,
  type StepPoint,
  type ValidationPoint,
} from '@starling-grid/protocol'

export interface ChartMetric {
  readonly metric: Metric
  readonly title: string
  readonly format: (value: number) => string
  /** of the samples of a training step; absent: steps do not measure it */
  readonly ofStep?: (point: StepPoint) => number
  readonly ofValidation: (point: ValidationPoint) => number
}

/** What a step says beside its loss, which is the mean over its targets. */
const OF_STEP: Readonly<Partial<Record<Metric, (point: StepPoint) => number>>> = {
  accuracy: ({ accuracy }) => accuracy,
  perplexity: ({ loss }) => Math.exp(loss),
}

/**
 * Those of a job beside its loss, the one that is shown first: what its file is judged by, or what tells most of its
 * targets. None where validations measure the loss alone.
 */
export function metricsShown({ metrics = ['accuracy'], stop }: RunView['job']): readonly ChartMetric[] {
  const known: readonly Metric[] = metrics.filter((metric) => metric !== 'loss')
  const told = Object.values(METRICS_OF_TARGETS).find(
    (ofTargets) => ofTargets.length === known.length && ofTargets.every((metric) => known.includes(metric)),
  )
  const ordered = [...(told ?? known)].reverse()
  const own = ordered.filter((metric) => metric === stop.metric)
  return [...own, ...ordered.filter((metric) => metric !== stop.metric)].map(chartMetric)
}

function chartMetric(metric: Metric): ChartMetric {
  const { name } = METRICS[metric]
  const ofStep = OF_STEP[metric]
  return {
    metric,
    title: `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`,
    format: (value) => metricValueText(name, value),
    ...(ofStep === undefined ? {} : { ofStep }),
    ofValidation: (point) => measuredValue(point, metric),
  }
}

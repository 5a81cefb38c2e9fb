// What `stop` and `evaluate` of a job contradict: each other, the model's metrics, and a schedule that needs an end.
import { type JobSpec, type Metric, METRICS, type Mistake } from '@starling-grid/protocol'

type JobRules = Pick<JobSpec, 'stop' | 'evaluate' | 'optimizer'>

/** Every mistake of a job whose fields are right one by one. `metrics` undefined: the model cannot be read. */
export function stopMistakes(
  { stop, evaluate, optimizer }: JobRules,
  metrics: readonly Metric[] | undefined,
): Mistake[] {
  return [
    ...boundMistakes(stop),
    ...evaluateMistakes(evaluate),
    ...metricMistakes(stop, metrics),
    ...scheduleMistakes(stop, optimizer),
  ]
}

function boundMistakes(stop: JobSpec['stop']): Mistake[] {
  if ([stop.steps, stop.epochs, stop.minutes].some((bound) => bound !== undefined)) return []
  const named = Object.keys(stop)
  return [
    {
      path: ['stop'],
      expected: 'one of `steps`, `epochs`, `minutes` at least',
      found: named.length === 0 ? 'none' : named.map((name) => `\`${name}\``).join(' and '),
      hint: 'name the most that the run may take',
    },
  ]
}

function evaluateMistakes({ everySteps, everyEpochs }: NonNullable<JobSpec['evaluate']> = {}): Mistake[] {
  if (everySteps === undefined || everyEpochs === undefined) return []
  return [
    { path: ['evaluate'], expected: 'one of `everySteps` and `everyEpochs`', found: 'both', hint: 'leave one out' },
  ]
}

function metricMistakes(
  { metric, target }: JobSpec['stop'],
  metrics: readonly Metric[] = Object.keys(METRICS) as Metric[],
): Mistake[] {
  const one = metrics.join(', ')
  if (metric !== undefined && !metrics.includes(metric))
    return [
      { path: ['stop', 'metric'], expected: `one of ${one}, which this model has`, found: JSON.stringify(metric) },
    ]
  if (target === undefined) return []
  if (metric === undefined)
    return [{ path: ['stop', 'metric'], expected: `one of ${one} beside \`target\``, found: 'nothing' }]
  const { most, name } = METRICS[metric]
  if (most === undefined || target <= most) return []
  return [
    {
      path: ['stop', 'target'],
      expected: `a target for ${name} of at most ${most}`,
      found: String(target),
      hint: `write ${Math.min(1, target / 100)} for ${target} %`,
    },
  ]
}

function scheduleMistakes(stop: JobSpec['stop'], { schedule }: JobSpec['optimizer']): Mistake[] {
  if (schedule === undefined || schedule.steps !== undefined) return []
  if (stop.steps !== undefined || stop.epochs !== undefined || stop.minutes === undefined) return []
  return [
    {
      path: ['optimizer', 'schedule', 'steps'],
      expected: 'the step of its end in a job that ends by `stop.minutes`',
      found: 'nothing',
      hint: 'write it, or name `stop.steps` or `stop.epochs`',
    },
  ]
}

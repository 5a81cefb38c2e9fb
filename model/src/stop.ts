// What `stop` and `evaluate` of a job contradict: each other, the model's loss, and a schedule that needs an end.
import type { JobSpec, Mistake } from '@starling-grid/protocol'
import type { Loss } from './spec.ts'

type JobRules = Pick<JobSpec, 'stop' | 'evaluate' | 'optimizer'>

/** Every mistake of a job whose fields are right one by one. `loss` undefined: the model cannot be read. */
export function stopMistakes({ stop, evaluate, optimizer }: JobRules, loss: Loss | undefined): Mistake[] {
  return [
    ...boundMistakes(stop),
    ...evaluateMistakes(evaluate),
    ...metricMistakes(stop, loss),
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

function metricMistakes({ metric, target }: JobSpec['stop'], loss: Loss | undefined): Mistake[] {
  if (metric === 'accuracy' && loss === 'mse')
    return [
      {
        path: ['stop', 'metric'],
        expected: 'loss in a job with the loss mse',
        found: '"accuracy"',
        hint: 'values have no accuracy: write loss',
      },
    ]
  if (target !== undefined && metric === undefined)
    return [{ path: ['stop', 'metric'], expected: 'loss or accuracy beside `target`', found: 'nothing' }]
  if (metric === 'accuracy' && target !== undefined && target > 1)
    return [
      {
        path: ['stop', 'target'],
        expected: 'an accuracy from 0 to 1',
        found: String(target),
        hint: `write ${Math.min(1, target / 100)} for ${target} %`,
      },
    ]
  return []
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

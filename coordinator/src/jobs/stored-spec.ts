// Jobs that an older version of this program stored, with the names that fields have today.
import { type JobSpec, MOST_EPOCHS } from '@starling-grid/protocol'

/** Fields that `stop` and `evaluate` replaced. */
interface OlderFields {
  readonly epochs?: number
  readonly maxSteps?: number
  readonly validateEvery?: number
}

/** A stored job as a submission of today would say it; one of today stays as it is. */
export function withFieldsOfToday(stored: JobSpec | (Omit<JobSpec, 'stop'> & OlderFields)): JobSpec {
  if ('stop' in stored) return stored
  const { epochs = MOST_EPOCHS, maxSteps, validateEvery, ...spec } = stored
  return {
    ...spec,
    stop: { epochs, ...(maxSteps === undefined ? {} : { steps: maxSteps }) },
    ...(validateEvery === undefined ? {} : { evaluate: { everyEpochs: validateEvery } }),
  }
}

// A whole job from outside: its fields, its model and its optimizer, with every mistake at once.
import {
  asJobSpec,
  findHint,
  jobMistakes,
  type JobSpec,
  type Metric,
  type Mistake,
  MistakesError,
  MOST_BATCH_BLOCKS,
  type Path,
} from '@starling-grid/protocol'
import { isTuned, parseTuned } from './base-model.ts'
import { METRICS_OF_TEXT, metricsOfModel } from './metrics.ts'
import { parseOptimizerSpec } from './optimizer.ts'
import { parseModelSpec } from './parse.ts'
import { startMistakes } from './start.ts'
import { stopMistakes } from './stop.ts'
import { weakScalingMistakes } from './weak-scaling.ts'

/**
 * Checks all of a job that can be checked without its dataset.
 * @throws MistakesError 'job-invalid', or 'model-invalid' when only the model is wrong
 * @example parseJob(JSON.parse(text))
 */
export function parseJob(value: unknown): JobSpec {
  const fields = jobMistakes(value)
  const { model, optimizer, stop, evaluate, from } = (
    typeof value === 'object' && value !== null ? value : {}
  ) as Partial<JobSpec>
  const isWrong = (key: string): boolean => fields.some(({ path }) => path.length === 0 || path[0] === key)
  const { mistakes: inModel, metrics } = isWrong('model') ? NO_MODEL : modelOf(model)
  // The schema finds what is wrong with single attributes of an optimizer; this finds what contradicts another.
  const inOptimizer = isWrong('optimizer') ? [] : mistakesIn('optimizer', () => parseOptimizerSpec(optimizer, findHint))
  const isAbsent = stop === undefined || optimizer === undefined // also where it has another name
  const inStop =
    isAbsent || ['stop', 'evaluate', 'optimizer'].some(isWrong)
      ? []
      : stopMistakes({ stop, optimizer, ...(evaluate ? { evaluate } : {}) }, metrics)
  const inStart = isWrong('from') ? [] : startMistakes(from)
  const inScaling = fields.length > 0 ? [] : weakScalingMistakes(asJobSpec(value))
  const job = [...fields, ...inStart, ...inOptimizer, ...inStop, ...inScaling]
  if (job.length + inModel.length > 0)
    throw new MistakesError(job.length > 0 ? 'job-invalid' : 'model-invalid', [...job, ...inModel])
  return accumulated(asJobSpec(value))
}

/**
 * A member always adds the gradients of its blocks: more of them for a step are a larger batch.
 * @throws MistakesError when a step has more blocks than any may have
 */
function accumulated(spec: JobSpec): JobSpec {
  const { gradientAccumulation: times, batchBlocks, ...job } = spec
  if (times === undefined) return spec
  const blocks = batchBlocks * times
  if (blocks <= MOST_BATCH_BLOCKS) return { ...job, batchBlocks: blocks }
  const mistake = {
    path: ['gradientAccumulation'],
    expected: `at most ${MOST_BATCH_BLOCKS} blocks in a step`,
    found: `${times} × ${batchBlocks} = ${blocks}`,
    hint: 'make `blockSamples` larger, or write less',
  }
  throw new MistakesError('job-invalid', [mistake])
}

interface ReadModel {
  readonly mistakes: readonly Mistake[]
  /** undefined: the model cannot be read */
  readonly metrics?: readonly Metric[]
}

const NO_MODEL: ReadModel = { mistakes: [] }

function modelOf(model: unknown): ReadModel {
  let metrics: readonly Metric[] = METRICS_OF_TEXT
  const mistakes = mistakesIn('model', () => {
    if (isTuned(model)) parseTuned(model, findHint)
    else metrics = metricsOfModel(parseModelSpec(model, findHint))
  })
  return mistakes.length > 0 ? { mistakes } : { mistakes, metrics }
}

function mistakesIn(key: string, read: () => unknown): Mistake[] {
  try {
    read()
    return []
  } catch (error) {
    if (!(error instanceof MistakesError)) throw error
    return error.mistakes.map((mistake) => ({ ...mistake, path: [key, ...mistake.path] satisfies Path }))
  }
}

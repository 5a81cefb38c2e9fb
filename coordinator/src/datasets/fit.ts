// Whether a model takes what a dataset holds, and answers what its targets are: refused when a job is submitted.
import { type ModelSpec, outputShape, tokenVocabulary } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { lastSize } from '@starling-grid/shaders'

/** What targets are: a class, numbers, or a 0 or 1 for each label. */
export type TargetKind = 'classes' | 'values' | 'labels'

/** A dataset as a model meets it. */
export interface FittedSamples {
  readonly name: string
  readonly inputShape: readonly number[]
  readonly target: TargetKind
  /** how many classes, values or labels */
  readonly classes: number
}

/** @throws GridError 'job-invalid' */
export function requireFit(model: ModelSpec, samples: FittedSamples): void {
  requireInput(model, samples)
  requireLoss(model, samples)
  const { name, classes, target } = samples
  const output = outputShape(model)
  const answers = output.reduce((product, size) => product * size, 1)
  if (model.loss !== 'cross_entropy') {
    if (target === 'classes' ? output.join() === String(classes) : answers === classes) return
    throw refused(
      `one output for each of the ${classes} ${target} of dataset ${name} with the loss ${model.loss}`,
      `[${output.join(', ')}]; change its last layer`,
    )
  }
  if (output.length > 1)
    throw refused(
      `a model that answers one row of classes for a sample of dataset ${name}`,
      `[${output.join(', ')}]; change its last layer`,
    )
  if (lastSize(output) < classes)
    throw refused(
      `a model of the ${classes} classes of dataset ${name}`,
      `one of ${lastSize(output)}; change its last layer`,
    )
}

function requireInput(model: ModelSpec, { name, inputShape }: FittedSamples): void {
  if (tokenVocabulary(model) !== undefined)
    throw refused(`a model for the numbers of dataset ${name}`, 'one for tokens; choose another model or dataset')
  if (model.input.join() !== inputShape.join())
    throw refused(
      `a model for samples of [${inputShape.join(', ')}] of dataset ${name}`,
      `one for [${model.input.join(', ')}]; change its input`,
    )
}

/** Losses that fit each kind of target, the usual one first. */
const LOSSES: Readonly<Record<TargetKind, readonly ModelSpec['loss'][]>> = {
  classes: ['cross_entropy', 'mse', 'bce_with_logits'],
  values: ['mse'],
  labels: ['bce_with_logits', 'mse'],
}

function requireLoss({ loss }: ModelSpec, { name, target }: FittedSamples): void {
  if (LOSSES[target].includes(loss)) return
  throw refused(
    `the loss ${LOSSES[target].join(' or ')} for dataset ${name}, whose targets are ${target}`,
    `${loss}; change the loss of the model`,
  )
}

/** Tokens of one sample of a model for text. @throws GridError 'job-invalid' when it is none */
export function contextOf(model: ModelSpec): number {
  const [context, ...more] = model.input
  if (tokenVocabulary(model) !== undefined && context !== undefined && more.length === 0) return context
  throw refused(
    'a model for text that begins with an `embedding` of tokens',
    `one of [${model.input.join(', ')}] numbers; choose another model`,
  )
}

interface Vocabulary {
  /** name of the dataset or file */
  readonly text: string
  readonly tokens: number
  readonly what: 'characters' | 'tokens'
}

/** The model has every token, and says for each place which one comes next. @throws GridError 'job-invalid' */
export function requireAnswers(model: ModelSpec, context: number, { text, tokens, what }: Vocabulary): void {
  const vocabulary = tokenVocabulary(model) ?? 0
  if (tokens > vocabulary)
    throw refused(`a model of the ${tokens} ${what} in ${text}`, `one of ${vocabulary}; change its vocabulary`)
  const output = outputShape(model)
  if (model.loss !== 'cross_entropy' || output.length !== 2 || output[0] !== context || lastSize(output) < tokens)
    throw refused(
      `a model that answers [${context}, ${tokens}] with cross_entropy for ${text}`,
      `[${output.join(', ')}] with ${model.loss}`,
    )
}

function refused(expected: string, got: string): GridError {
  return new GridError('job-invalid', `expected ${expected}, got ${got}`)
}

// The optimizer of a job: from JSON, and its state to and from named tensors of a checkpoint.

import { float32Values, floatTensor, GridError, type HintFinder, type StoredTensor } from '@starling-grid/protocol'
import {
  createOptimizerState,
  type LearningRateSchedule,
  slotNames,
  type OptimizerSpec,
  type OptimizerState,
} from '@starling-grid/shaders'
import { Fields, Misreadings } from './fields.ts'

const OPTIMIZERS = ['sgd', 'adam', 'adamw'] as const
/** A run of more steps is a mistake. */
const MAX_STEPS = 100_000_000

/**
 * Checks an optimizer description.
 * @throws GridError('job-invalid') naming the attribute
 * @example parseOptimizerSpec({ type: 'sgd', lr: 0.02, momentum: 0.9 })
 */
export function parseOptimizerSpec(json: unknown, hint?: HintFinder): OptimizerSpec {
  const misread = new Misreadings(hint)
  const place = { place: 'the optimizer', path: [], misread }
  const spec = misread.attempt([], () => readOptimizer(new Fields(place, json)), undefined)
  misread.throwIfAny('job-invalid')
  if (spec === undefined) throw new Error('internal: an optimizer was neither read nor refused')
  return spec
}

function readOptimizer(fields: Fields): OptimizerSpec {
  const type = fields.choice('type', OPTIMIZERS)
  const decay = fields.take('decay') === undefined ? undefined : fields.choice('decay', ['all', 'matrices'])
  const common = {
    lr: fields.positive('lr'),
    ...present('weightDecay', fields.fraction('weightDecay')),
    ...present('decay', decay),
    ...present('schedule', readSchedule(fields)),
  }
  const spec: OptimizerSpec =
    type === 'sgd'
      ? {
          type,
          ...common,
          ...present('momentum', fields.fraction('momentum')),
          ...present('nesterov', fields.optionalBoolean('nesterov')),
        }
      : { type, ...common, ...present('betas', readBetas(fields)), ...present('eps', fields.optionalPositive('eps')) }
  fields.requireAllRead()
  return spec
}

function readSchedule(fields: Fields): LearningRateSchedule | undefined {
  const schedule = fields.object('schedule')
  if (schedule === undefined) return undefined
  const type = schedule.choice('type', ['linear', 'cosine'])
  const to = schedule.take('to')
  if (typeof to !== 'number' || !(to >= 0 && to <= 1)) throw schedule.refuse('to', 'a number from 0 to 1', to)
  const steps = schedule.optionalInteger('steps', { min: 1, max: MAX_STEPS })
  const warmup = schedule.optionalInteger('warmup', { min: 0, max: steps ?? MAX_STEPS })
  schedule.requireAllRead()
  return { type, to, ...present('steps', steps), ...present('warmup', warmup) }
}

function readBetas(fields: Fields): readonly [number, number] | undefined {
  const betas = fields.take('betas')
  if (betas === undefined) return undefined
  if (
    !Array.isArray(betas) ||
    betas.length !== 2 ||
    !betas.every((beta) => typeof beta === 'number' && beta >= 0 && beta < 1)
  )
    throw fields.refuse('betas', 'two numbers from 0 to below 1', betas)
  return [Number(betas[0]), Number(betas[1])]
}

function present<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V }
}

/** Whose state it is: of the optimizer of steps, or of the outer one of local rounds. */
export type OptimizerPrefix = 'optimizer.' | 'outer.'

/**
 * State as named tensors: `optimizer.step`, `optimizer.scalars` and one vector per slot, such as `optimizer.exp_avg`.
 */
export function optimizerTensors(
  spec: OptimizerSpec,
  state: OptimizerState,
  prefix: OptimizerPrefix = 'optimizer.',
): Map<string, StoredTensor> {
  const names = slotNames(spec)
  const tensors = new Map<string, StoredTensor>([
    [`${prefix}step`, doubles([], Float64Array.of(state.step))],
    [`${prefix}scalars`, doubles([state.scalars.length], state.scalars)],
  ])
  for (const [index, slot] of state.slots.entries())
    tensors.set(`${prefix}${names[index]}`, floatTensor([slot.length], slot))
  return tensors
}

/**
 * State from the tensors of a checkpoint, copied.
 * @throws GridError('message-malformed') when a tensor is missing or has another length
 */
export function restoreOptimizer(
  spec: OptimizerSpec,
  parameterCount: number,
  tensors: ReadonlyMap<string, StoredTensor>,
  prefix: OptimizerPrefix = 'optimizer.',
): OptimizerState {
  const state = createOptimizerState(spec, parameterCount)
  const [step = 0] = readDoubles(tensors, `${prefix}step`, 1)
  if (!Number.isSafeInteger(step) || step < 0) throw malformed(`expected ${prefix}step as a whole number, got ${step}`)
  state.step = step
  state.scalars.set(readDoubles(tensors, `${prefix}scalars`, state.scalars.length))
  for (const [index, name] of slotNames(spec).entries())
    state.slots[index]?.set(float32Values(find(tensors, prefix + name, 'F32', parameterCount)))
  return state
}

function doubles(shape: readonly number[], values: Float64Array): StoredTensor {
  return { dtype: 'F64', shape, data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) }
}

function readDoubles(tensors: ReadonlyMap<string, StoredTensor>, name: string, length: number): Float64Array {
  const { data } = find(tensors, name, 'F64', length)
  return new Float64Array(new Uint8Array(data).buffer) // copied: the view may not be aligned
}

function find(
  tensors: ReadonlyMap<string, StoredTensor>,
  name: string,
  dtype: 'F32' | 'F64',
  length: number,
): StoredTensor {
  const tensor = tensors.get(name)
  const bytes = length * (dtype === 'F32' ? Float32Array.BYTES_PER_ELEMENT : Float64Array.BYTES_PER_ELEMENT)
  if (tensor?.dtype !== dtype || tensor.data.byteLength !== bytes)
    throw malformed(`expected ${name} with ${length} values of ${dtype}, got none or others`)
  return tensor
}

function malformed(what: string): GridError {
  return new GridError('message-malformed', `expected a state of this optimizer: ${what}`)
}

// Version 0 of a job that begins with given parameters (`from`). The tensors of a file or a version are matched with
// the model by name and shape. Pure: who calls it has read the file.
import {
  float32Values,
  type JobSpec,
  type Mistake,
  MistakesError,
  nearest,
  type Path,
  type Safetensors,
  type StartRule,
  type StoredTensor,
} from '@starling-grid/protocol'
import { initialParameters } from './init.ts'
import { type ParameterEntry, parameterLayout } from './param-layout.ts'
import type { ModelSpec } from './spec.ts'
import { FORMAT } from './version-state.ts'

/** More would help no author, and a stranger's file must not make a long answer. */
const MAX_MISTAKES = 100
/** Characters of a tensor's name in a mistake. */
const LONGEST_NAME = 120

/** Where the tensors come from, as the field of a job file that names it. */
export type StartSource = 'file' | 'job'

/** What `from` contradicts in itself; its fields are right one by one. */
export function startMistakes(from: JobSpec['from']): Mistake[] {
  if (from === undefined) return []
  const { file, job, version } = from
  if ((file === undefined) === (job === undefined))
    return [
      {
        path: ['from'],
        expected: 'one of `file` and `job`',
        found: file === undefined ? 'neither' : 'both',
        hint: 'name a safetensors file, or another job of yours',
      },
    ]
  if (file === undefined || version === undefined) return []
  return [
    { path: ['from', 'version'], expected: 'no version beside `file`', found: String(version), hint: 'leave it out' },
  ]
}

export interface Start {
  /** (parameterCount,) in the order of the layout */
  readonly parameters: Float32Array<ArrayBuffer>
  /** names of the model's tensors that begin anew, from the seed */
  readonly anew: readonly string[]
}

/**
 * The parameters of version 0: those of `source`, and the seed's where `except` says so.
 * @throws MistakesError 'job-invalid' with each tensor that does not match
 * @example startFrom(spec, { seed: 1, except: ['fc3'] }, readSafetensors(await readFile('model.safetensors')))
 */
export function startFrom(
  spec: ModelSpec,
  { seed, except = [], as = 'file' }: { readonly seed: number; readonly as?: StartSource } & Pick<StartRule, 'except'>,
  source: Safetensors,
): Start {
  const { entries } = parameterLayout(spec)
  const given = parametersIn(source)
  const isLeftOut = (name: string): boolean => except.some((one) => covers(one, name))
  const taken = entries.filter(({ name }) => !isLeftOut(name))
  const mistakes = [
    ...unusedExceptions(except, [...entries.map(({ name }) => name), ...given.keys()]),
    ...mismatches(taken, given, isLeftOut, ['from', as]),
    ...(taken.length > 0 ? [] : [nothingTaken()]),
  ]
  if (mistakes.length > 0) throw new MistakesError('job-invalid', mistakes.slice(0, MAX_MISTAKES))
  const parameters = initialParameters(spec, seed)
  for (const { name, offset } of taken) {
    const tensor = given.get(name)
    if (tensor !== undefined) parameters.set(float32Values(tensor), offset)
  }
  return { parameters, anew: entries.flatMap(({ name }) => (isLeftOut(name) ? name : [])) }
}

/** `fc3` stands for itself, and for `fc3.weight` and all else below it. */
function covers(exception: string, name: string): boolean {
  return name === exception || name.startsWith(exception.endsWith('.') ? exception : `${exception}.`)
}

/** What PyTorch's batch norms count, and nothing here uses. */
const COUNTERS = /(^|\.)num_batches_tracked$/
/** State of optimizers in a file of a whole version. */
const OPTIMIZER_STATE = /^(optimizer|outer)\./

function parametersIn({ tensors, metadata }: Safetensors): Map<string, StoredTensor> {
  const isVersion = metadata['format'] === FORMAT
  return new Map([...tensors].filter(([name]) => !COUNTERS.test(name) && !(isVersion && OPTIMIZER_STATE.test(name))))
}

function unusedExceptions(except: readonly string[], names: readonly string[]): Mistake[] {
  const beginnings = new Set(names.flatMap((name) => [name, name.slice(0, Math.max(0, name.lastIndexOf('.')))]))
  beginnings.delete('')
  return except.flatMap((one, i) => {
    if (names.some((name) => covers(one, name))) return []
    const meant = nearest(one, beginnings)
    const hint = meant === undefined ? 'leave it out' : `did you mean \`${meant}\`?`
    return [{ path: ['from', 'except', i], expected: 'a tensor of the model or its start', found: clipped(one), hint }]
  })
}

function mismatches(
  wanted: readonly ParameterEntry[],
  given: ReadonlyMap<string, StoredTensor>,
  isLeftOut: (name: string) => boolean,
  path: Path,
): Mistake[] {
  const names = new Set(wanted.map(({ name }) => name))
  const strangers = [...given].filter(([name]) => !names.has(name) && !isLeftOut(name))
  return [
    ...wanted.flatMap((entry) => mismatch(entry, given.get(entry.name), strangers) ?? []),
    ...strangers.map(([name, { shape }]) => ({
      expected: 'tensors of the model only',
      found: tensorText(name, shape),
      hint: 'name it under `from.except` to leave it out',
    })),
  ].map((mistake) => ({ path, ...mistake }))
}

function mismatch(
  { name, shape }: ParameterEntry,
  tensor: StoredTensor | undefined,
  strangers: readonly (readonly [string, StoredTensor])[],
): Omit<Mistake, 'path'> | undefined {
  const expected = tensorText(name, shape)
  if (tensor === undefined) return { expected, found: 'no such tensor', hint: hintFor(name, strangers) }
  if (tensor.shape.join() !== shape.join()) return { expected, found: shapeText(tensor.shape), hint: ANEW }
  if (tensor.dtype !== 'F32')
    return { expected: `${expected} of f32`, found: tensor.dtype, hint: 'store it as float32' }
  if (!float32Values(tensor).every(Number.isFinite))
    return { expected: `${expected} of finite numbers`, found: 'NaN or infinity', hint: ANEW }
  return undefined
}

const ANEW = 'name it under `from.except` to begin it from the seed'

function hintFor(name: string, strangers: readonly (readonly [string, StoredTensor])[]): string {
  const alike = nearest(
    name,
    strangers.map(([other]) => other),
  )
  return alike === undefined ? ANEW : `rename \`${clipped(alike)}\` to it, or ${ANEW}`
}

function nothingTaken(): Mistake {
  return {
    path: ['from', 'except'],
    expected: 'tensors of the model beside those that are left out',
    found: 'none',
    hint: 'leave `from` out to begin all from the seed',
  }
}

function tensorText(name: string, shape: readonly number[]): string {
  return `${clipped(name)} ${shapeText(shape)}`
}

function shapeText(shape: readonly number[]): string {
  return `[${shape.join(', ')}]`
}

function clipped(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name
}

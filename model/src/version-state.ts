// A version as bytes, equal on all members that hold it: SHA-256 of these bytes is what CONFIRM and checkpoints compare
// (R8, R15). A safetensors file: parameters under PyTorch's names, then `optimizer.*`. Independent of chains, except
// for the (v, id) that it carries.

import {
  float32Values,
  floatTensor,
  GridError,
  isGridError,
  type ModelSignature,
  readSafetensors,
  safetensorsBytes,
  safetensorsParts,
  sameVersion,
  type StoredTensor,
  type TensorForm,
  versionId,
  type VersionRef,
  writeSafetensors,
} from '@starling-grid/protocol'
import { createOptimizerState, type OptimizerSpec, type OptimizerState, slotNames } from '@starling-grid/shaders'
import { modelHash } from './hash.ts'
import { initialParameters } from './init.ts'
import { optimizerTensors, restoreOptimizer, type OptimizerPrefix } from './optimizer.ts'
import { parameterLayout, type ParameterLayout } from './param-layout.ts'
import type { ModelSpec } from './spec.ts'

/** What a version's bytes depend on besides what it holds; one per job. */
export interface VersionForm {
  readonly spec: ModelSpec
  readonly layout: ParameterLayout
  readonly optimizer: OptimizerSpec
  /** of jobs with local rounds: what moves the parameters by the mean difference that members made */
  readonly outer?: OptimizerSpec | undefined
}

/** All that training goes on from; `parameters` as long as the layout's total. */
export interface VersionContent {
  readonly parameters: Float32Array
  readonly optimizerState: OptimizerState
  /** of the outer optimizer, in jobs with local rounds */
  readonly outerState?: OptimizerState
}
export interface VersionState extends VersionContent {
  readonly version: VersionRef
}

/** of a file with a whole version */
export const FORMAT = 'starling-version'
/** Bytes of JSON around one tensor: its name (PyTorch's are shorter than 200), dtype, shape and offsets. */
const HEADER_BYTES_PER_TENSOR = 400
/** Bytes of metadata, optimizer scalars and padding. */
const HEADER_BYTES_BASE = 4096

/** What version 0 holds where the seed makes it: anybody can make it from the job alone. */
export function initialVersionState(
  spec: ModelSpec,
  optimizer: OptimizerSpec,
  seed: number,
  outer?: OptimizerSpec,
): VersionContent {
  return {
    parameters: initialParameters(spec, seed),
    ...emptyStates({ layout: parameterLayout(spec), optimizer, outer }),
  }
}

/** States before the first step, of both optimizers. */
export function emptyStates({
  layout,
  optimizer,
  outer,
}: Omit<VersionForm, 'spec'>): Omit<VersionContent, 'parameters'> {
  return {
    optimizerState: createOptimizerState(optimizer, layout.trained),
    ...(outer ? { outerState: createOptimizerState(outer, layout.trained) } : {}),
  }
}

/** @example digest(encodeVersionState({ spec, layout, optimizer, version, parameters, optimizerState })) */
export function encodeVersionState(state: VersionForm & VersionState): Uint8Array<ArrayBuffer> {
  return writeSafetensors(...versionFile(state))
}

/** The same file in parts, one after the other; those of tensors are views of the state. */
export function versionParts(state: VersionForm & VersionState): Uint8Array[] {
  return safetensorsParts(...versionFile(state))
}

type File = readonly [ReadonlyMap<string, StoredTensor>, Readonly<Record<string, string>>]

function versionFile({ spec, layout, optimizer, outer, version, ...state }: VersionForm & VersionState): File {
  const tensors = new Map([
    ...parameterTensors(layout, state.parameters),
    ...optimizerTensors(optimizer, state.optimizerState),
    ...(outer && state.outerState ? optimizerTensors(outer, state.outerState, 'outer.') : []),
  ])
  return [tensors, { format: FORMAT, ...identity(spec, version) }]
}

/**
 * The state in these bytes, copied out of them.
 * @throws GridError 'version-corrupt' when they are not a version of this model, hold NaN or infinity, or are not
 * `version` when it is given
 */
export function decodeVersionState(
  bytes: Uint8Array,
  form: VersionForm & { readonly version?: VersionRef },
): VersionState {
  return asCorrupt(() => {
    const { tensors, metadata } = readSafetensors(bytes)
    const { format } = metadata
    if (format !== FORMAT) throw corrupt(`its format is ${JSON.stringify(format?.slice(0, 40))}, expected ${FORMAT}`)
    if (metadata['model'] !== modelHash(form.spec)) throw corrupt('it belongs to another model')
    const version = versionIn(metadata)
    if (form.version !== undefined) requireVersion(version, form.version)
    requireNames(
      tensors,
      form.layout,
      [form.optimizer, form.outer].reduce(
        (sum, spec) => sum + (spec ? optimizerTensors(spec, createOptimizerState(spec, 0)).size : 0),
        0,
      ),
    )
    return {
      version,
      parameters: parametersIn(tensors, form.layout),
      optimizerState: optimizerIn(tensors, form.optimizer, form.layout, 'optimizer.'),
      ...(form.outer ? { outerState: optimizerIn(tensors, form.outer, form.layout, 'outer.') } : {}),
    }
  })
}

/** No version of this model has more bytes; an upload beyond it is refused before it is read. */
export function maxVersionBytes({ layout, optimizer, outer }: Omit<VersionForm, 'spec'>): number {
  const vectors = 1 + slotNames(optimizer).length + (outer ? slotNames(outer).length : 0)
  const tensors = layout.entries.length + vectors + 4
  return vectors * layout.total * Float32Array.BYTES_PER_ELEMENT + tensors * HEADER_BYTES_PER_TENSOR + HEADER_BYTES_BASE
}

/** A file of parameters alone, as volunteers of async mode pull it; in parts, as versionParts has them. */
export function parameterParts({
  spec,
  layout,
  version,
  parameters,
}: Omit<VersionForm, 'optimizer'> & {
  readonly version: VersionRef
  readonly parameters: Float32Array
}): Uint8Array[] {
  return safetensorsParts(parameterTensors(layout, parameters), { format: 'pt', ...identity(spec, version) })
}

/**
 * The flat vector of a version, copied out of a file that holds parameters alone.
 * @throws GridError 'version-corrupt' when they do not fit the layout, or are not of `version` when it is given
 */
export function readParameters(bytes: Uint8Array, layout: ParameterLayout, version?: VersionRef): Float32Array {
  return asCorrupt(() => {
    const { tensors, metadata } = readSafetensors(bytes)
    requireNames(tensors, layout, 0)
    if (version !== undefined) requireVersion(versionIn(metadata), version)
    return parametersIn(tensors, layout)
  })
}

/** What an export's header says. */
export interface ExportHeader extends Omit<VersionForm, 'optimizer'> {
  readonly version: VersionRef
  /** of the version, where it was validated */
  readonly accuracy?: number
  /** false: one member alone measured it */
  readonly accuracyConfirmed?: boolean
  /** of the text that it was trained on: character by token */
  readonly vocabulary?: string
  /** what it takes and answers, in the words of its dataset */
  readonly signature?: ModelSignature
  /** of a text of pieces: JSON of its tokenizer.json */
  readonly tokenizer?: string
  /** of a tuned model: JSON of how it is talked to (ChatForm) */
  readonly chat?: string
}

export interface ExportedModel extends ExportHeader {
  readonly parameters: Float32Array
}

/**
 * A trained model for download: `safetensors.torch.load_file` reads it as a state_dict. Its metadata hold all that
 * using it needs.
 */
export function exportModel(model: ExportedModel): Uint8Array<ArrayBuffer> {
  return writeSafetensors(parameterTensors(model.layout, model.parameters), exportMetadata(model))
}

/** Bytes of that file, without its parameters. */
export function exportBytes(header: ExportHeader): number {
  return safetensorsBytes(parameterForms(header.layout), exportMetadata(header))
}

function exportMetadata(header: ExportHeader) {
  const { spec, version, accuracy, accuracyConfirmed = true, vocabulary, signature, tokenizer, chat } = header
  const metadata: Record<string, string> = {
    ...(accuracy === undefined ? {} : { accuracy: String(accuracy) }),
    ...(accuracy === undefined || accuracyConfirmed ? {} : { accuracy_confirmed: 'false' }),
    ...(vocabulary === undefined ? {} : { vocabulary }),
    ...(signature === undefined ? {} : { signature: JSON.stringify(signature) }),
    ...(tokenizer === undefined ? {} : { tokenizer }),
    ...(chat === undefined ? {} : { chat }),
  }
  return { format: 'pt', name: spec.name, spec: JSON.stringify(spec), ...identity(spec, version), ...metadata }
}

function identity(spec: ModelSpec, version: VersionRef): Record<string, string> {
  return { v: String(version.v), id: version.id, model: modelHash(spec) }
}

function versionIn({ v = '', id = '' }: Readonly<Record<string, string>>): VersionRef {
  if (!/^[0-9]{1,15}$/.test(v) || !/^[0-9a-f]{64}$/.test(id)) throw corrupt('its metadata name no version')
  return { v: Number(v), id: versionId(id) }
}

function requireVersion(version: VersionRef, expected: VersionRef): void {
  if (sameVersion(version, expected)) return
  throw corrupt(
    `expected version ${expected.v} (${expected.id.slice(0, 8)}…), got ${version.v} (${version.id.slice(0, 8)}…)`,
  )
}

/** A tensor that the model does not have would hide bytes. Which ones are there, the readers of each check. */
function requireNames(tensors: ReadonlyMap<string, StoredTensor>, { entries }: ParameterLayout, others: number): void {
  const missing = entries.find(({ name }) => !tensors.has(name))
  if (missing !== undefined) throw corrupt(`tensor ${missing.name} is missing`)
  if (tensors.size !== entries.length + others)
    throw corrupt(`it has ${tensors.size} tensors, expected ${entries.length + others}`)
}

function parametersIn(tensors: ReadonlyMap<string, StoredTensor>, { total, entries }: ParameterLayout): Float32Array {
  const flat = new Float32Array(total)
  for (const { name, shape, offset } of entries) {
    const tensor = tensors.get(name)
    if (tensor?.dtype !== 'F32' || tensor.shape.join() !== shape.join())
      throw corrupt(
        `tensor ${name} is ${tensor?.dtype} [${tensor?.shape.join(', ')}], expected F32 [${shape.join(', ')}]`,
      )
    const values = float32Values(tensor)
    requireFinite(values, name)
    flat.set(values, offset)
  }
  return flat
}

function optimizerIn(
  tensors: ReadonlyMap<string, StoredTensor>,
  optimizer: OptimizerSpec,
  { trained }: ParameterLayout,
  prefix: OptimizerPrefix,
): OptimizerState {
  const state = restoreOptimizer(optimizer, trained, tensors, prefix)
  const names = slotNames(optimizer)
  for (const [index, slot] of state.slots.entries()) requireFinite(slot, `${prefix}${names[index]}`)
  requireFinite(state.scalars, `${prefix}scalars`)
  return state
}

function requireFinite(values: Float32Array | Float64Array, name: string): void {
  if (!values.every(Number.isFinite)) throw corrupt(`tensor ${name} holds NaN or infinity`)
}

function parameterForms({ entries }: ParameterLayout): Map<string, TensorForm> {
  return new Map(entries.map(({ name, shape }) => [name, { dtype: 'F32', shape }]))
}

function parameterTensors({ total, entries }: ParameterLayout, parameters: Float32Array): Map<string, StoredTensor> {
  if (parameters.length !== total)
    throw new Error(`internal: ${parameters.length} parameters do not fit a layout of ${total}`)
  return new Map(
    entries.map(({ name, shape, offset, length }) => [
      name,
      floatTensor(shape, parameters.subarray(offset, offset + length)),
    ]),
  )
}

/** Whatever is wrong with the file, its reader asked for a version. */
function asCorrupt<T>(reading: () => T): T {
  try {
    return reading()
  } catch (error) {
    throw isGridError(error) && error.code !== 'version-corrupt' ? corrupt(error.message, error) : error
  }
}

function corrupt(what: string, cause?: unknown): GridError {
  return new GridError(
    'version-corrupt',
    `expected a version of this run, got another file: ${what}`,
    cause === undefined ? undefined : { cause },
  )
}

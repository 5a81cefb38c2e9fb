// JSON → ModelSpec. The one place where a model from outside becomes typed; whatever it returns can be built and run.

import { type HintFinder, type Path, shown } from '@starling-grid/protocol'
import { elementCount, type Shape } from '@starling-grid/shaders'
import { layerShapes, placeOf } from './expand.ts'
import { Fields, invalid, Misfit, Misreadings } from './fields.ts'
import {
  MAX_NESTING,
  readGpt,
  readResnet,
  readVit,
  readMultiheadAttention,
  readParallel,
  readResidual,
  type ReadLayers,
} from './layers/blocks.ts'
import { readCausalLm } from './layers/causal-lm.ts'
import type { ParameterSpec } from './layers/rule.ts'
import { LAYERS, type OperatorType } from './layers/table.ts'
import {
  MAX_ACTIVATION_BYTES,
  MAX_DIMENSIONS,
  MAX_FROZEN_PARAMETERS,
  MAX_LAYERS,
  MAX_SAMPLE_ELEMENTS,
  MAX_SIZE,
  MAX_TRAINED_PARAMETERS,
} from './limits.ts'
import { activationBytesPerSample, fixedEntries, parameterCount } from './param-layout.ts'
import type { BlockLayer, LayerSpec, ModelSpec } from './spec.ts'
import { requireTokensWhereTaken } from './tokens.ts'

const BLOCKS: { readonly [T in BlockLayer['type']]: (fields: Fields, read: ReadLayers) => LayerSpec } = {
  residual: readResidual,
  parallel: readParallel,
  multihead_attention: readMultiheadAttention,
  gpt: readGpt,
  vit: readVit,
  resnet: readResnet,
  causal_lm: readCausalLm,
}
/** Operators with several inputs come out of blocks; in a list, where each layer has one input, they mean nothing. */
const INSIDE_BLOCKS_ONLY: readonly string[] = ['add', 'concat', 'swiglu', 'rotary']
export const LAYER_TYPES = [
  ...Object.keys(LAYERS).filter((type) => !INSIDE_BLOCKS_ONLY.includes(type)),
  ...Object.keys(BLOCKS),
]
const LOSSES = ['cross_entropy', 'mse', 'bce_with_logits'] as const

/**
 * Checks a model description and fills in defaults. `hint`: for an author who reads the mistakes.
 * @throws GridError('model-invalid') naming the layer, what it expects and what it gets
 * @example parseModelSpec({ input: [784], layers: [{ type: 'linear', name: 'fc', out: 10 }], loss: 'cross_entropy' })
 */
export function parseModelSpec(json: unknown, hint?: HintFinder): ModelSpec {
  const misread = new Misreadings(hint)
  const places: LayerPlaces = { paths: new Map(), misread }
  const spec = misread.attempt([], () => readModel(json, places), undefined)
  misread.throwIfAny()
  if (spec === undefined) throw new Error('internal: a model was neither read nor refused')
  misread.attempt([], () => requireTrainable(spec, places), undefined)
  misread.throwIfAny()
  return spec
}

function readModel(json: unknown, places: LayerPlaces): ModelSpec {
  const fields = new Fields({ place: 'the model', path: [], misread: places.misread }, json)
  const spec = readHead(fields, (layers) =>
    layers.map((layer, index) => readLayer(layer, { at: [index], path: ['layers', index], places })),
  )
  fields.requireAllRead()
  return spec
}

/** `read`: what its layers say */
export function readHead(fields: Fields, read: (layers: readonly unknown[]) => readonly LayerSpec[]): ModelSpec {
  const { misread } = fields
  return {
    name: fields.name('name', 'model'),
    input: misread.attempt(['input'], () => readInput(fields), [1]),
    layers: read(fields.list('layers', MAX_LAYERS)),
    ...misread.attempt(['loss'], () => readLoss(fields), { loss: 'mse' }),
    inputScale: fields.positive('inputScale', 1),
    ...fields.present('base', readBase(fields)),
  }
}

/** The attributes of one layer; lists of layers inside it are taken as they are. */
export function readLayerOf(type: string, fields: Fields): LayerSpec {
  return isBlock(type) ? BLOCKS[type](fields, () => []) : LAYERS[type as OperatorType].read(fields)
}

/** Each attribute is right; what they make together is looked at. @throws Misfit with the path of the layer */
function requireTrainable(spec: ModelSpec, { paths }: LayerPlaces): void {
  try {
    const placed = layerShapes(spec)
    requireTokensWhereTaken(placed)
    requireDistinctNames(placed.flatMap((layer) => layer.parameters))
    requireBounded(spec)
    requireAllTargets(spec)
  } catch (error) {
    if (!(error instanceof Misfit)) throw error
    throw new Misfit(error.place, error.mistake, { path: paths.get(error.place) ?? [] })
  }
}

/** Both numbers, since a change of one often changes the other. */
function requireBounded(spec: ModelSpec): void {
  const fixed = fixedEntries(spec).reduce((sum, { length }) => sum + length, 0)
  if (fixed > MAX_FROZEN_PARAMETERS)
    throw invalid('the model', `at most ${MAX_FROZEN_PARAMETERS} frozen parameters`, String(fixed))
  const [parameters, activations] = [parameterCount(spec), activationBytesPerSample(spec)]
  if (parameters <= MAX_TRAINED_PARAMETERS && activations <= MAX_ACTIVATION_BYTES) return
  throw invalid(
    'the model',
    `at most ${MAX_TRAINED_PARAMETERS} parameters and ${MAX_ACTIVATION_BYTES} bytes of activations per sample`,
    `${parameters} and ${activations}; use a smaller model`,
  )
}

/** Statistics are divided by the targets that count: what is ignored would shrink them. */
function requireAllTargets(spec: ModelSpec): void {
  const norm = layerShapes(spec).find(({ layer }) => layer.type === 'batchnorm2d')
  if (norm && spec.ignore_index !== undefined)
    throw invalid(norm.place, 'no `ignore_index`, since it measures whole batches,', 'one; use `groupnorm`')
}

function readLoss(fields: Fields): Pick<ModelSpec, 'loss' | 'label_smoothing' | 'ignore_index'> {
  const loss = fields.choice('loss', LOSSES, 'cross_entropy')
  if (loss !== 'cross_entropy') return { loss }
  const ignored = fields.take('ignore_index')
  if (ignored !== undefined && !Number.isInteger(ignored))
    throw fields.refuse('ignore_index', 'a whole number', ignored)
  return {
    loss,
    ...fields.present('label_smoothing', fields.fraction('label_smoothing')),
    ...fields.present('ignore_index', ignored === undefined ? undefined : Number(ignored)),
  }
}

function readBase(fields: Fields): string | undefined {
  const base = fields.take('base')
  if (base === undefined || (typeof base === 'string' && /^[0-9a-f]{64}$/.test(base))) return base
  throw fields.refuse('base', 'the SHA-256 of an imported model', base)
}

function readInput(fields: Fields): Shape {
  const input = fields.list('input', MAX_DIMENSIONS)
  const sizes = input.filter(
    (size): size is number => Number.isInteger(size) && Number(size) >= 1 && Number(size) <= MAX_SIZE,
  )
  if (sizes.length !== input.length || elementCount(sizes) > MAX_SAMPLE_ELEMENTS)
    throw fields.refuse('input', `whole sizes with a product of at most ${MAX_SAMPLE_ELEMENTS}`, input)
  return sizes
}

/** Where each layer stands in the JSON, by its place in sentences. */
interface LayerPlaces {
  readonly paths: Map<string, Path>
  readonly misread: Misreadings
}

interface LayerPlace {
  /** the list's index, then those of the lists inside it */
  readonly at: readonly number[]
  readonly path: Path
  readonly places: LayerPlaces
}

/** Stands in for a layer that cannot be read; the model is refused in the end. */
const UNREAD: LayerSpec = { type: 'flatten' }

function readLayer(json: unknown, place: LayerPlace): LayerSpec {
  return place.places.misread.attempt(place.path, () => readAttributes(json, place), UNREAD)
}

function readAttributes(json: unknown, here: LayerPlace): LayerSpec {
  const { at, path, places } = here
  const { misread } = places
  const type = new Fields({ place: `layer ${at.join('.')}`, path, misread }, json).requiredChoice('type', LAYER_TYPES)
  const fields = new Fields({ place: placeOf(at, type), path, misread }, json)
  places.paths.set(fields.place, path)
  fields.take('type')
  const layer = isBlock(type)
    ? BLOCKS[type](fields, readerInside(here, fields.place))
    : LAYERS[type as OperatorType].read(fields)
  fields.requireAllRead()
  return layer
}

function isBlock(type: string): type is BlockLayer['type'] {
  return Object.hasOwn(BLOCKS, type)
}

function readerInside({ at: outer, path, places }: LayerPlace, place: string): ReadLayers {
  return (json, { at, key }) => {
    if (outer.length >= MAX_NESTING) throw invalid(place, `at most ${MAX_NESTING} levels of nesting`, 'more')
    if (!Array.isArray(json) || json.length > MAX_LAYERS)
      throw invalid(place, `a list of at most ${MAX_LAYERS} layers in its \`${key[0]}\``, shown(json))
    return json.map((layer: unknown, i) =>
      readLayer(layer, { at: [...outer, ...at, i], path: [...path, ...key, i], places }),
    )
  }
}

function requireDistinctNames(parameters: readonly ParameterSpec[]): void {
  const seen = new Map<string, ParameterSpec>()
  for (const parameter of parameters) {
    const { name, shape, tied } = parameter
    const first = seen.get(name)
    if (first !== undefined && tied !== true)
      throw invalid('the model', 'layers with names of their own', `two that hold a parameter \`${name}\``)
    if (first !== undefined && first.shape.join() !== shape.join())
      throw invalid(
        'the model',
        `one shape of its shared parameter \`${name}\``,
        `[${first.shape.join(', ')}] and [${shape.join(', ')}]`,
      )
    seen.set(name, first ?? parameter)
  }
}

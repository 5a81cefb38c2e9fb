// JSON → ModelSpec. The one place where a model from outside becomes typed; whatever it returns can be built and run.

import { MAX_PARAMETERS } from '@starling-grid/protocol'
import { elementCount, type Shape } from '@starling-grid/shaders'
import { layerShapes, placeOf } from './expand.ts'
import { Fields, invalid } from './fields.ts'
import {
  MAX_NESTING,
  readGpt,
  readMultiheadAttention,
  readParallel,
  readResidual,
  type ReadLayers,
} from './layers/blocks.ts'
import type { ParameterSpec } from './layers/rule.ts'
import { LAYERS, type OperatorType } from './layers/table.ts'
import { MAX_ACTIVATION_BYTES, MAX_DIMENSIONS, MAX_LAYERS, MAX_SAMPLE_ELEMENTS, MAX_SIZE } from './limits.ts'
import { activationBytesPerSample, parameterCount } from './param-layout.ts'
import type { BlockLayer, LayerSpec, ModelSpec } from './spec.ts'
import { requireTokensWhereTaken } from './tokens.ts'

const BLOCKS: { readonly [T in BlockLayer['type']]: (fields: Fields, read: ReadLayers) => LayerSpec } = {
  residual: readResidual,
  parallel: readParallel,
  multihead_attention: readMultiheadAttention,
  gpt: readGpt,
}
/** Operators with several inputs come out of blocks; in a list, where each layer has one input, they mean nothing. */
const INSIDE_BLOCKS_ONLY: readonly string[] = ['add', 'concat']
const LAYER_TYPES = [
  ...Object.keys(LAYERS).filter((type) => !INSIDE_BLOCKS_ONLY.includes(type)),
  ...Object.keys(BLOCKS),
]
const LOSSES = ['cross_entropy', 'mse', 'bce_with_logits'] as const

/**
 * Checks a model description and fills in defaults.
 * @throws GridError('model-invalid') naming the layer, what it expects and what it gets
 * @example parseModelSpec({ input: [784], layers: [{ type: 'linear', name: 'fc', out: 10 }], loss: 'cross_entropy' })
 */
export function parseModelSpec(json: unknown): ModelSpec {
  const fields = new Fields('the model', json)
  const spec: ModelSpec = {
    name: fields.name('name', 'model'),
    input: readInput(fields),
    layers: fields.list('layers', MAX_LAYERS).map((layer, index) => readLayer(layer, [index])),
    ...readLoss(fields),
    inputScale: fields.positive('inputScale', 1),
  }
  fields.requireAllRead()
  const placed = layerShapes(spec)
  requireTokensWhereTaken(placed)
  requireDistinctNames(placed.flatMap((layer) => layer.parameters))
  requireBounded(spec)
  requireAllTargets(spec)
  return spec
}

/** Both numbers, since a change of one often changes the other. */
function requireBounded(spec: ModelSpec): void {
  const [parameters, activations] = [parameterCount(spec), activationBytesPerSample(spec)]
  if (parameters <= MAX_PARAMETERS && activations <= MAX_ACTIVATION_BYTES) return
  throw invalid(
    `expected at most ${MAX_PARAMETERS} parameters and ${MAX_ACTIVATION_BYTES} bytes of activations per sample, ` +
      `got ${parameters} and ${activations}; use a smaller model`,
  )
}

/** Statistics are divided by the targets that count: what is ignored would shrink them. */
function requireAllTargets(spec: ModelSpec): void {
  const norm = layerShapes(spec).find(({ layer }) => layer.type === 'batchnorm2d')
  if (norm && spec.ignore_index !== undefined)
    throw invalid(`${norm.place} measures whole batches and does not go with \`ignore_index\`; use \`groupnorm\``)
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

function readInput(fields: Fields): Shape {
  const input = fields.list('input', MAX_DIMENSIONS)
  const sizes = input.filter(
    (size): size is number => Number.isInteger(size) && Number(size) >= 1 && Number(size) <= MAX_SIZE,
  )
  if (sizes.length !== input.length || elementCount(sizes) > MAX_SAMPLE_ELEMENTS)
    throw fields.refuse('input', `whole sizes with a product of at most ${MAX_SAMPLE_ELEMENTS}`, input)
  return sizes
}

function readLayer(json: unknown, path: readonly number[]): LayerSpec {
  const type = new Fields(`layer ${path.join('.')}`, json).choice('type', LAYER_TYPES)
  const fields = new Fields(placeOf(path, type), json)
  fields.take('type')
  const layer = isBlock(type)
    ? BLOCKS[type](fields, readerInside(path, fields.place))
    : LAYERS[type as OperatorType].read(fields)
  fields.requireAllRead()
  return layer
}

function isBlock(type: string): type is BlockLayer['type'] {
  return Object.hasOwn(BLOCKS, type)
}

function readerInside(path: readonly number[], place: string): ReadLayers {
  return (json, index) => {
    if (path.length >= MAX_NESTING)
      throw invalid(`${place} expects at most ${MAX_NESTING} levels of nesting and gets ${path.length}`)
    if (!Array.isArray(json) || json.length > MAX_LAYERS)
      throw invalid(`${place} expects a list of at most ${MAX_LAYERS} layers inside it`)
    return json.map((layer: unknown, i) => readLayer(layer, [...path, ...index, i]))
  }
}

function requireDistinctNames(parameters: readonly ParameterSpec[]): void {
  const seen = new Map<string, ParameterSpec>()
  for (const parameter of parameters) {
    const { name, shape, tied } = parameter
    const first = seen.get(name)
    if (first !== undefined && tied !== true)
      throw invalid(`two layers hold a parameter \`${name}\`; each layer needs a name of its own`)
    if (first !== undefined && first.shape.join() !== shape.join())
      throw invalid(
        `\`${name}\` is shared and has the shape [${first.shape.join(', ')}] in one layer and ` +
          `[${shape.join(', ')}] in another`,
      )
    seen.set(name, first ?? parameter)
  }
}

// JSON → ModelSpec. The one place where a model from outside becomes typed; whatever it returns can be built and run.

import { elementCount, type Shape } from '@starling-grid/shaders'
import { MAX_PARAMETERS } from '@starling-grid/protocol'
import { Fields, invalid } from './fields.ts'
import { LAYERS, ruleOf, type LayerType, type ParameterSpec } from './layers.ts'
import { MAX_DIMENSIONS, MAX_LAYERS, MAX_SAMPLE_ELEMENTS, MAX_SIZE } from './limits.ts'
import type { LayerSpec, ModelSpec } from './spec.ts'

const LAYER_TYPES = Object.keys(LAYERS) as LayerType[]

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
    layers: fields.list('layers', MAX_LAYERS).map(readLayer),
    loss: fields.choice('loss', ['cross_entropy', 'mse'], 'cross_entropy'),
    inputScale: fields.positive('inputScale', 1),
  }
  fields.requireAllRead()
  requireDistinctNames(layerShapes(spec).flatMap(layer => layer.parameters))
  return spec
}

/** One layer with everything that follows from the layers before it. */
export interface PlacedLayer {
  readonly layer: LayerSpec
  readonly x: Shape
  readonly y: Shape
  readonly parameters: readonly ParameterSpec[]
  /** of one forward pass over one sample */
  readonly multiplyAdds: number
}

/** Follows the shape of one sample through the model. */
export function layerShapes(spec: ModelSpec): PlacedLayer[] {
  let x = spec.input
  return spec.layers.map((layer, index) => {
    const place = placeOf(index, layer.type)
    const rule = ruleOf(layer)
    const y = rule.shape(layer, x, place)
    if (elementCount(y) > MAX_SAMPLE_ELEMENTS)
      throw invalid(`${place} makes ${elementCount(y)} values per sample, the limit is ${MAX_SAMPLE_ELEMENTS}`)
    const placed = { layer, x, y, parameters: rule.parameters(layer, x), multiplyAdds: rule.multiplyAdds(layer, x, y) }
    x = y
    return placed
  })
}

function readInput(fields: Fields): Shape {
  const input = fields.list('input', MAX_DIMENSIONS)
  const sizes = input.filter((size): size is number => Number.isInteger(size) && Number(size) >= 1 && Number(size) <= MAX_SIZE)
  if (sizes.length !== input.length || elementCount(sizes) > MAX_SAMPLE_ELEMENTS)
    throw fields.refuse('input', `whole sizes with a product of at most ${MAX_SAMPLE_ELEMENTS}`, input)
  return sizes
}

function readLayer(json: unknown, index: number): LayerSpec {
  const { type, place } = readType(json, index)
  const fields = new Fields(place, json)
  fields.take('type')
  const layer = LAYERS[type].read(fields)
  fields.requireAllRead()
  return layer
}

function readType(json: unknown, index: number): { type: LayerType; place: string } {
  const type = new Fields(`layer ${index}`, json).choice('type', LAYER_TYPES)
  return { type, place: placeOf(index, type) }
}

/** Layers count from 0, as in the JSON list. */
function placeOf(index: number, type: LayerType): string {
  return `layer ${index} \`${type}\``
}

function requireDistinctNames(parameters: readonly ParameterSpec[]): void {
  const seen = new Set<string>()
  let total = 0
  for (const { name, shape } of parameters) {
    if (seen.has(name)) throw invalid(`two layers hold a parameter \`${name}\`; each layer needs a name of its own`)
    seen.add(name)
    total += elementCount(shape)
  }
  if (total > MAX_PARAMETERS) throw invalid(`the model has ${total} parameters, the limit is ${MAX_PARAMETERS}`)
}

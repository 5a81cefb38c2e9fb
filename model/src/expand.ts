// A model as the list of its operators, in the order of computation: blocks unfolded, shapes followed, parameters
// named.

import { elementCount, type Shape } from '@starling-grid/shaders'
import { invalid } from './fields.ts'
import { expandCausalLm } from './layers/causal-lm.ts'
import { expandResnet } from './layers/residual-network.ts'
import type { ParameterSpec } from './layers/rule.ts'
import { ruleOf } from './layers/table.ts'
import { type ExpandedOperators, expandGpt, expandMultiheadAttention, type Value } from './layers/transformer.ts'
import { expandVit } from './layers/vision-transformer.ts'
import { MAX_OPERATORS, MAX_SAMPLE_ELEMENTS } from './limits.ts'
import type { LayerSpec, ModelSpec, OperatorLayer, ParallelLayer } from './spec.ts'

/** One operator with everything that follows from the operators before it. */
export interface PlacedLayer {
  readonly layer: OperatorLayer
  /** for messages: "layer 3.1 `conv2d`" */
  readonly place: string
  readonly inputs: readonly [Value, ...Value[]]
  /** of the first input */
  readonly x: Shape
  readonly y: Shape
  readonly parameters: readonly ParameterSpec[]
  /** of one forward pass over one sample */
  readonly multiplyAdds: number
}

/** Follows the shape of one sample through the model. The last operator's value is the output. */
export function layerShapes(spec: ModelSpec): PlacedLayer[] {
  const expansion = new Expansion(spec.input)
  expansion.sequence(spec.layers, 0, [])
  return expansion.placed
}

/** Where a layer stands in the JSON: the list's index, then those of the lists inside it. */
export function placeOf(path: readonly number[], type: string): string {
  return `layer ${path.join('.')} \`${type}\``
}

export class Expansion implements ExpandedOperators {
  readonly placed: PlacedLayer[] = []
  readonly #input: Shape

  constructor(input: Shape) {
    this.#input = input
  }

  shapeOf(value: Value): Shape {
    return (value === 0 ? this.#input : this.placed[value - 1]?.y) ?? []
  }

  /** Layers one after another, from `x`; the value of the last. */
  sequence(layers: readonly LayerSpec[], x: Value, path: readonly number[]): Value {
    return layers.reduce((value, layer, index) => this.#layer(layer, value, [...path, index]), x)
  }

  operator(layer: OperatorLayer, inputs: readonly [Value, ...Value[]], place: string): Value {
    if (this.placed.length >= MAX_OPERATORS)
      throw invalid(place, `a model of at most ${MAX_OPERATORS} operators`, 'more')
    const rule = ruleOf(layer)
    const [first, ...others] = inputs
    const x = this.shapeOf(first)
    const y = rule.shape(layer, [x, ...others.map((value) => this.shapeOf(value))], place)
    if (elementCount(y) > MAX_SAMPLE_ELEMENTS)
      throw invalid(place, `at most ${MAX_SAMPLE_ELEMENTS} values per sample`, String(elementCount(y)))
    return this.placed.push({
      layer,
      place,
      inputs,
      x,
      y,
      parameters: rule.parameters(layer, x),
      multiplyAdds: rule.multiplyAdds(layer, x, y),
    })
  }

  #layer(layer: LayerSpec, x: Value, path: readonly number[]): Value {
    const place = placeOf(path, layer.type)
    switch (layer.type) {
      case 'residual': {
        const through = this.sequence(layer.layers, x, path)
        return this.operator(
          { type: 'add' },
          [layer.shortcut ? this.sequence(layer.shortcut, x, [...path, layer.layers.length]) : x, through],
          place,
        )
      }
      case 'parallel':
        return this.#parallel(
          layer.branches.map((branch, i) => this.sequence(branch, x, [...path, i])),
          layer.combine,
          place,
        )
      case 'multihead_attention':
        return expandMultiheadAttention(this, layer, x, place)
      case 'gpt':
        return expandGpt(this, layer, x, place)
      case 'vit':
        return expandVit(this, layer, x, place)
      case 'resnet':
        return expandResnet(this, layer, x, place)
      case 'causal_lm':
        return expandCausalLm(this, layer, x, place)
      default:
        return this.operator(layer, [x], place)
    }
  }

  #parallel([first = 0, ...others]: readonly Value[], type: ParallelLayer['combine'], place: string): Value {
    return this.operator({ type }, [first, ...others], place)
  }
}

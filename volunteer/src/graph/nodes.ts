// ModelSpec → the nodes of its graph: each operator with its tensors, sums of many branches taken two by two.

import {
  fixedEntries,
  layerShapes,
  parameterLayout,
  targetsPerSample,
  type ModelSpec,
  type ParameterEntry,
  type PlacedLayer,
} from '@starling-grid/model'
import type { Node } from './ops/op.ts'
import { opOf } from './ops/table.ts'
import type { Tensor, TensorFactory } from './tensor.ts'

export interface Nodes {
  readonly nodes: readonly Node[]
  readonly output: Tensor
}

export function buildNodes(
  spec: ModelSpec,
  { input, keys }: { readonly input: Tensor; readonly keys: Tensor },
  tensors: TensorFactory,
): Nodes {
  const builder = new NodeBuilder(spec, keys, tensors)
  /** by the model's numbers of values */
  const values = [input]
  for (const placed of layerShapes(spec))
    values.push(
      builder.place(
        placed,
        placed.inputs.map((value) => valueOf(values, value)),
      ),
    )
  return { nodes: builder.nodes, output: values.at(-1) ?? input }
}

function valueOf(values: readonly Tensor[], value: number): Tensor {
  const tensor = values[value]
  if (!tensor) throw new Error(`internal: value ${value} is used before it is made`)
  return tensor
}

class NodeBuilder {
  readonly nodes: Node[] = []
  readonly #entries: ReadonlyMap<string, ParameterEntry>
  readonly #fixed: ReadonlyMap<string, number>
  readonly #targetsPerSample: number
  readonly #keys: Tensor
  readonly #tensors: TensorFactory

  constructor(spec: ModelSpec, keys: Tensor, tensors: TensorFactory) {
    this.#entries = new Map(parameterLayout(spec).entries.map((entry) => [entry.name, entry]))
    this.#fixed = new Map(fixedEntries(spec).map(({ name }, index) => [name, index]))
    this.#targetsPerSample = targetsPerSample(spec)
    this.#keys = keys
    this.#tensors = tensors
  }

  place(placed: PlacedLayer, [first, ...others]: readonly Tensor[]): Tensor {
    if (!first) throw new Error(`internal: ${placed.place} without an input`)
    if (placed.layer.type !== 'add') return this.#node(placed, [first, ...others])
    return others.reduce((sum, other) => this.#node(placed, [sum, other]), first)
  }

  #node(placed: PlacedLayer, inputs: readonly [Tensor, ...Tensor[]]): Tensor {
    const { layer, place, y: shape } = placed
    const op = opOf(layer.type)
    const index = this.nodes.length
    const y = op.view
      ? this.#tensors.view(inputs[0], shape)
      : this.#tensors.create('activation', `${layer.type} ${index}`, shape)
    const base = {
      layer,
      place,
      inputs,
      y,
      index,
      keys: this.#keys,
      targetsPerSample: this.#targetsPerSample,
      parameters: this.#parameters(placed),
    }
    const kept = Object.entries(op.saved?.(base) ?? {}).map(([name, { shape: of, shared }]) => {
      const label = `${layer.type} ${index} ${name}`
      return [
        name,
        shared ? this.#tensors.createShared('activation', label, of) : this.#tensors.create('activation', label, of),
      ] as const
    })
    this.nodes.push({ ...base, saved: Object.fromEntries(kept) })
    return y
  }

  #parameters({ place, parameters }: PlacedLayer): Record<string, Tensor> {
    return Object.fromEntries(
      parameters.map(({ role, name, shape }) => {
        const fixed = this.#fixed.get(name)
        if (fixed !== undefined) return [role, this.#tensors.createFixed(name, shape, fixed)]
        const entry = this.#entries.get(name)
        if (!entry) throw new Error(`internal: ${name} of ${place} is not in the layout`)
        return [role, this.#tensors.createFlat('parameter', name, entry.shape, entry.offset)]
      }),
    )
  }
}

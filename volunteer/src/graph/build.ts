// ModelSpec → static graph: the kernel calls of forward, loss and backward, over named tensors. Knows nothing of devices.

import { layerShapes, parameterLayout, type LayerSpec, type ModelSpec, type ParameterEntry } from '@starling-grid/model'
import type { KernelCall } from '@starling-grid/shaders'
import { deriveBackward } from './backward.ts'
import { LOSSES } from './losses.ts'
import { opOf, type Node } from './ops.ts'
import { TensorFactory, type Tensor } from './tensor.ts'

export interface Graph {
  readonly spec: ModelSpec
  readonly input: Tensor
  readonly output: Tensor
  readonly parameters: readonly ParameterEntry[]
  readonly parameterCount: number
  readonly forward: readonly KernelCall<Tensor>[]
  readonly loss: readonly KernelCall<Tensor>[]
  readonly backward: readonly KernelCall<Tensor>[]
  /** what the loss reads and writes; undefined in a graph whose output gradient is given */
  readonly lossTensors: { readonly target: Tensor; readonly loss: Tensor; readonly correct: Tensor } | undefined
  /** ∂/∂output, given from outside when there is no loss */
  readonly outputGradient: Tensor
  /** ∂/∂input, where it was asked for */
  readonly inputGradient: Tensor | undefined
}

export interface GraphOptions {
  /** 'loss': backward starts at the model's loss; 'given': at an output gradient that the caller supplies */
  readonly outputGradient?: 'loss' | 'given'
  readonly inputGradient?: boolean
}

/** @example const graph = buildGraph(lenet5()) */
export function buildGraph(spec: ModelSpec, options: GraphOptions = {}): Graph {
  const tensors = new TensorFactory()
  const input = tensors.create('input', 'input', spec.input)
  const { nodes, output } = buildNodes(spec, input, tensors)
  const end = options.outputGradient === 'given' ? openEnd(output, tensors) : lossEnd(spec, output, tensors)
  const backward = deriveBackward(nodes, tensors, { ...end, inputGradient: options.inputGradient ?? false })
  const layout = parameterLayout(spec)
  return {
    spec, input, output, ...end,
    parameters: layout.entries, parameterCount: layout.total,
    forward: nodes.flatMap(node => opOf(node.op).forward(node)),
    backward: backward.calls,
    inputGradient: backward.inputGradient,
  }
}

function buildNodes(spec: ModelSpec, input: Tensor, tensors: TensorFactory): { nodes: Node[]; output: Tensor } {
  const entries = new Map(parameterLayout(spec).entries.map(entry => [entry.name, entry]))
  let x = input
  const nodes = layerShapes(spec).map(({ layer, parameters }, index) => {
    const op = opOf(layer.type)
    const shape = op.shape(layer, x.shape)
    const y = op.view ? tensors.view(x, shape) : tensors.create('activation', `${layer.type} ${index}`, shape)
    const node: Node = { op: layer.type, attrs: layer, x, y, ...parameterTensors(layer, parameters.map(({ name }) => entries.get(name)), tensors) }
    x = y
    return node
  })
  return { nodes, output: x }
}

function parameterTensors(layer: LayerSpec, entries: readonly (ParameterEntry | undefined)[], tensors: TensorFactory): Pick<Node, 'weight' | 'bias'> {
  const [weight, bias] = entries.map(entry => {
    if (!entry) throw new Error(`internal: a parameter of ${layer.type} is not in the layout`)
    return tensors.create('parameter', entry.name, entry.shape, entry.offset)
  })
  return { ...(weight ? { weight } : {}), ...(bias ? { bias } : {}) }
}

type End = Pick<Graph, 'loss' | 'lossTensors' | 'outputGradient'>

function lossEnd(spec: ModelSpec, output: Tensor, tensors: TensorFactory): End {
  const rule = LOSSES[spec.loss]
  const rows = [rule.rows(output.shape)]
  const lossTensors = {
    target: tensors.create('target', 'target', rule.targetShape(output.shape)),
    loss: tensors.create('rowLoss', 'loss', rows),
    correct: tensors.create('rowCorrect', 'correct', rows),
  }
  const outputGradient = tensors.create('activationGradient', '∂output', output.shape)
  return { lossTensors, outputGradient, loss: [rule.kernel({ x: output, dx: outputGradient, ...lossTensors })] }
}

function openEnd(output: Tensor, tensors: TensorFactory): End {
  return { loss: [], lossTensors: undefined, outputGradient: tensors.create('upstream', '∂output', output.shape) }
}

// Backward derived from forward by the table: nodes in reverse, each handing its input's gradient to the node before it.

import type { KernelCall } from '@starling-grid/shaders'
import { opOf, type Node, type NodeGradients } from './ops.ts'
import type { Tensor, TensorFactory } from './tensor.ts'

export interface BackwardOptions {
  /** ∂/∂output of the last node */
  readonly outputGradient: Tensor
  /** whether anybody needs ∂/∂input of the first node */
  readonly inputGradient: boolean
}

export interface Backward {
  readonly calls: readonly KernelCall<Tensor>[]
  readonly inputGradient: Tensor | undefined
}

export function deriveBackward(nodes: readonly Node[], tensors: TensorFactory, options: BackwardOptions): Backward {
  const calls: KernelCall<Tensor>[] = []
  const first = firstLearningNode(nodes, options.inputGradient)
  let dy: Tensor | undefined = options.outputGradient
  for (const [index, node] of [...nodes.entries()].reverse()) {
    if (!dy) break
    const dx: Tensor | undefined = index > first || options.inputGradient ? gradientOf(node, dy, tensors) : undefined
    calls.push(...opOf(node.op).backward(node, { ...parameterGradients(node, tensors), dy, ...(dx ? { dx } : {}) }))
    dy = dx
  }
  return { calls, inputGradient: options.inputGradient ? dy : undefined }
}

/** Nodes before the first one with parameters need no gradient: nothing there learns. */
function firstLearningNode(nodes: readonly Node[], inputGradient: boolean): number {
  if (inputGradient) return 0
  const first = nodes.findIndex(node => node.weight !== undefined)
  return first === -1 ? nodes.length : first
}

function gradientOf(node: Node, dy: Tensor, tensors: TensorFactory): Tensor {
  if (opOf(node.op).view) return tensors.view(dy, node.x.shape)
  return tensors.create('activationGradient', `∂${node.x.name}`, node.x.shape)
}

function parameterGradients({ weight, bias }: Node, tensors: TensorFactory): Pick<NodeGradients, 'dweight' | 'dbias'> {
  const gradient = ({ name, shape, offset }: Tensor) => tensors.create('parameterGradient', `∂${name}`, shape, offset)
  return { ...(weight ? { dweight: gradient(weight) } : {}), ...(bias ? { dbias: gradient(bias) } : {}) }
}

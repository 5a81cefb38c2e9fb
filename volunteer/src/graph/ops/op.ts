// What a row of the table of operators says.

import type { OperatorLayer } from '@starling-grid/model'
import type { KernelCall, Shape } from '@starling-grid/shaders'
import type { Tensor } from '../tensor.ts'

export type OpName = OperatorLayer['type']
export type LayerOf<O extends OpName> = Extract<OperatorLayer, { type: O }>

/** One operator applied to tensors. */
export interface Node<O extends OpName = OpName> {
  readonly layer: LayerOf<O>
  /** for messages */
  readonly place: string
  readonly inputs: readonly [Tensor, ...Tensor[]]
  /** by role: `weight`, `bias`, `runningMean` … */
  readonly parameters: Readonly<Record<string, Tensor>>
  readonly y: Tensor
  /** what forward keeps for backward besides y, by the names of the op's `saved` */
  readonly saved: Readonly<Record<string, Tensor>>
  /** (1,) per sample: what random operators draw from */
  readonly keys: Tensor
  /** tells random operators of one model apart */
  readonly index: number
  /**
   * targets that the loss sums over for one sample: statistics carry this factor, since the sum is divided by all
   * targets
   */
  readonly targetsPerSample: number
}

/** What backward starts from and where it writes. */
export interface NodeGradients {
  readonly dy: Tensor
  /** for each input; undefined where it is not needed */
  readonly dinputs: readonly (Tensor | undefined)[]
  /** by role, statistics too */
  readonly dparameters: Readonly<Record<string, Tensor>>
}

export interface Op<O extends OpName> {
  forward(node: Node<O>): KernelCall<Tensor>[]
  backward(node: Node<O>, gradients: NodeGradients): KernelCall<Tensor>[]
  /** forward in evaluation, where it differs from training */
  evaluate?(node: Node<O>): KernelCall<Tensor>[]
  /** tensors that forward keeps for backward: shape per sample, or of the whole value when shared */
  saved?(
    node: Pick<Node<O>, 'layer' | 'inputs' | 'y'>,
  ): Readonly<Record<string, { readonly shape: Shape; readonly shared?: boolean }>>
  /** true when y is x under another shape: no kernel runs, and dx is dy under another shape */
  readonly view?: true
  /** true when the gradient of every input is dy itself: no kernel runs in backward */
  readonly passesGradient?: true
  /** true when forward in training draws random numbers */
  readonly random?: true
  /** true when samples of one batch influence each other: such models compute block by block */
  readonly mixesSamples?: true
}

type NodeParts = Pick<Node, 'place' | 'parameters' | 'saved'>

/** A parameter that the operator cannot do without. */
export function parameter({ place, parameters }: NodeParts, role: string): Tensor {
  const found = parameters[role]
  if (!found) throw new Error(`internal: ${place} lacks its ${role}`)
  return found
}

export function savedBy({ place, saved }: NodeParts, name: string): Tensor {
  const found = saved[name]
  if (!found) throw new Error(`internal: ${place} did not keep ${name}`)
  return found
}

/** weight, and bias where the layer has one. */
export function weightAndBias(node: NodeParts): { weight: Tensor; bias?: Tensor } {
  const { bias } = node.parameters
  return { weight: parameter(node, 'weight'), ...(bias ? { bias } : {}) }
}

export function weightAndBiasGradients({ dparameters }: NodeGradients): { dweight: Tensor; dbias?: Tensor } {
  const { weight: dweight, bias: dbias } = dparameters
  if (!dweight) throw new Error('internal: a weight without a gradient')
  return dbias ? { dweight, dbias } : { dweight }
}

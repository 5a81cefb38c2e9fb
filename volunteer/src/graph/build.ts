// ModelSpec → static graph: the kernel calls of forward, loss and backward, over named tensors. Independent of
// devices.

import {
  fixedEntries,
  type FixedEntry,
  parameterLayout,
  tokenVocabulary,
  type ModelSpec,
  type ParameterEntry,
} from '@starling-grid/model'
import type { KernelCall, PackedStorage } from '@starling-grid/shaders'
import { deriveBackward } from './backward.ts'
import { lossRule } from './losses.ts'
import { buildNodes } from './nodes.ts'
import type { Node } from './ops/op.ts'
import { opOf } from './ops/table.ts'
import { TensorFactory, type Tensor } from './tensor.ts'

/** 'evaluation' is forward without what only training does */
export type GraphPart = 'forward' | 'evaluation' | 'loss' | 'backward' | 'logits'

/** Kernel calls in the order of computation. */
export interface GraphCalls {
  readonly forward: readonly KernelCall<Tensor>[]
  /** forward without what only training does; the same list where nothing differs */
  readonly evaluation: readonly KernelCall<Tensor>[]
  readonly loss: readonly KernelCall<Tensor>[]
  readonly backward: readonly KernelCall<Tensor>[]
  /** where the output is made in pieces of the classes, and only when it is asked for: one product each */
  readonly logits?: readonly KernelCall<Tensor>[]
}

/** What goes in and comes out. */
interface GraphEnds {
  readonly input: Tensor
  /** the model's input is token ids, which must be below this; undefined: numbers */
  readonly vocab: number | undefined
  /** (1,) per sample: what dropout draws from; undefined in models without random operators */
  readonly keys: Tensor | undefined
  readonly output: Tensor
}

export interface Graph extends GraphCalls, GraphEnds {
  readonly spec: ModelSpec
  readonly parameters: readonly ParameterEntry[]
  readonly parameterCount: number
  /** by where it begins in the layout: a parameter that lies in chunks, of so many elements each */
  readonly chunks?: ReadonlyMap<number, number>
  /** what is given once and stays, by the index that its tensors have as their offset */
  readonly fixed: readonly FixedEntry[]
  /** frozen matrices lie so; absent: as f32 */
  readonly packed?: PackedStorage
  /** what the loss reads and writes; undefined in a graph whose output gradient is given */
  readonly lossTensors: { readonly target: Tensor; readonly loss: Tensor; readonly correct: Tensor } | undefined
  /** ∂/∂output, given from outside when there is no loss */
  readonly outputGradient: Tensor
  /** ∂/∂input, where it was asked for */
  readonly inputGradient: Tensor | undefined
  /** what is brought once and stays: a run that brings none of it finds that of the run before */
  readonly resident: readonly Tensor[]
  /** samples of a batch influence each other: a batch must not be cut anywhere but between its blocks */
  readonly mixesSamples: boolean
}

export interface GraphOptions {
  /** 'loss': backward starts at the model's loss; 'given': at an output gradient that the caller supplies */
  readonly outputGradient?: 'loss' | 'given'
  readonly inputGradient?: boolean
  /** the input and a given output gradient stay where they are; absent: runs may use their memory up */
  readonly keepInputs?: boolean
}

/** @example const graph = buildGraph(lenet5()) */
export function buildGraph(spec: ModelSpec, options: GraphOptions = {}): Graph {
  const tensors = new TensorFactory()
  const input = tensors.create('input', 'input', spec.input)
  const keys = tensors.create('keys', 'keys', [1])
  const { nodes, output } = buildNodes(spec, { input, keys }, tensors)
  const end = options.outputGradient === 'given' ? openEnd(output, tensors) : lossEnd(spec, output, tensors)
  const backward = deriveBackward(nodes, tensors, {
    input,
    output,
    outputGradient: end.outputGradient,
    inputGradient: options.inputGradient ?? false,
  })
  const layout = parameterLayout(spec)
  return {
    spec,
    input,
    output,
    ...end,
    ...passesOf(nodes),
    parameters: layout.entries,
    parameterCount: layout.total,
    fixed: fixedEntries(spec),
    vocab: tokenVocabulary(spec),
    keys: nodes.some(({ layer }) => opOf(layer.type).random) ? keys : undefined,
    mixesSamples: nodes.some(({ layer }) => opOf(layer.type).mixesSamples),
    backward: backward.calls,
    inputGradient: backward.inputGradient,
    resident: options.keepInputs ? [input, ...(options.outputGradient === 'given' ? [end.outputGradient] : [])] : [],
  }
}

function passesOf(nodes: readonly Node[]): Pick<Graph, 'forward' | 'evaluation'> {
  const forward = nodes.flatMap((node) => opOf(node.layer.type).forward(node))
  if (!nodes.some(({ layer }) => opOf(layer.type).evaluate)) return { forward, evaluation: forward }
  return {
    forward,
    evaluation: nodes.flatMap((node) => opOf(node.layer.type).evaluate?.(node) ?? opOf(node.layer.type).forward(node)),
  }
}

type End = Pick<Graph, 'loss' | 'lossTensors' | 'outputGradient'>

function lossEnd(spec: ModelSpec, output: Tensor, tensors: TensorFactory): End {
  const rule = lossRule(spec.loss)
  const rows = [rule.rows(output.shape)]
  const lossTensors = {
    target: tensors.create('target', 'target', rule.targetShape(output.shape)),
    loss: tensors.create('rowLoss', 'loss', rows),
    correct: tensors.create('rowCorrect', 'correct', rows),
  }
  const outputGradient = tensors.create('activationGradient', '∂output', output.shape)
  return { lossTensors, outputGradient, loss: [rule.kernel({ x: output, dx: outputGradient, ...lossTensors }, spec)] }
}

function openEnd(output: Tensor, tensors: TensorFactory): End {
  return { loss: [], lossTensors: undefined, outputGradient: tensors.create('upstream', '∂output', output.shape) }
}

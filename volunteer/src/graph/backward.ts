// Backward derived from forward by the table: nodes in reverse, each giving its inputs their share of the gradient. A
// value that several nodes read gets the sum of what they give.

import type { KernelCall } from '@starling-grid/shaders'
import type { Node, NodeGradients } from './ops/op.ts'
import { opOf } from './ops/table.ts'
import type { Tensor, TensorFactory } from './tensor.ts'

export interface BackwardOptions {
  readonly output: Tensor
  /** ∂/∂output */
  readonly outputGradient: Tensor
  readonly input: Tensor
  /** whether anybody needs ∂/∂input */
  readonly inputGradient: boolean
}

export interface Backward {
  readonly calls: readonly KernelCall<Tensor>[]
  readonly inputGradient: Tensor | undefined
}

export function deriveBackward(nodes: readonly Node[], tensors: TensorFactory, options: BackwardOptions): Backward {
  const derivation = new Derivation(tensors, valuesThatLearn(nodes, options))
  derivation.give(options.output, options.outputGradient)
  for (const node of [...nodes].reverse()) derivation.through(node)
  const inputGradient = options.inputGradient ? derivation.gradientOf(options.input) : undefined
  return { calls: derivation.calls, inputGradient }
}

/** Ids of the values whose gradient is needed: what lies before the first parameter learns nothing. */
function valuesThatLearn(nodes: readonly Node[], { input, inputGradient }: BackwardOptions): ReadonlySet<number> {
  const learning = new Set(inputGradient ? [input.id] : [])
  for (const { inputs, parameters, y } of nodes)
    if (Object.values(parameters).some(learns) || inputs.some(({ id }) => learning.has(id))) learning.add(y.id)
  return learning
}

function learns({ role }: Tensor): boolean {
  return role === 'parameter'
}

/** What computes the gradient of parameters and nothing else. */
const OF_PARAMETERS = /\.parameterGradient$/

class Derivation {
  readonly calls: KernelCall<Tensor>[] = []
  readonly #tensors: TensorFactory
  readonly #learning: ReadonlySet<number>
  /** id of a value → what its readers gave so far, already summed */
  readonly #gradients = new Map<number, Tensor>()

  constructor(tensors: TensorFactory, learning: ReadonlySet<number>) {
    this.#tensors = tensors
    this.#learning = learning
  }

  gradientOf({ id }: Tensor): Tensor | undefined {
    return this.#gradients.get(id)
  }

  give(value: Tensor, gradient: Tensor): void {
    const before = this.#gradients.get(value.id)
    this.#gradients.set(value.id, before ? this.#sum(value, before, gradient) : gradient)
  }

  through(node: Node): void {
    const dy = this.gradientOf(node.y)
    if (!dy || !this.#learning.has(node.y.id)) return
    const op = opOf(node.layer.type)
    const dinputs = node.inputs.map((input) =>
      this.#learning.has(input.id) ? this.#gradientFor(node, input, dy) : undefined,
    )
    const calls = op.backward(node, { dy, dinputs, dparameters: this.#parameterGradients(node) })
    const isFixed = !Object.values(node.parameters).some(learns)
    this.calls.push(...calls.filter(({ kernel }) => !isFixed || !OF_PARAMETERS.test(kernel)))
    for (const [i, input] of node.inputs.entries()) {
      const dx = dinputs[i]
      if (dx) this.give(input, dx)
    }
  }

  #gradientFor({ layer, y }: Node, input: Tensor, dy: Tensor): Tensor {
    const op = opOf(layer.type)
    if (op.view) return this.#tensors.view(dy, input.shape)
    return op.passesGradient && input.size === y.size
      ? dy
      : this.#tensors.create('activationGradient', `∂${input.name}`, input.shape)
  }

  #parameterGradients({ parameters }: Node): NodeGradients['dparameters'] {
    return Object.fromEntries(
      Object.entries(parameters).map(([role, { name, shape, offset }]) => [
        role,
        this.#tensors.createFlat('parameterGradient', `∂${name}`, shape, offset),
      ]),
    )
  }

  #sum(value: Tensor, a: Tensor, b: Tensor): Tensor {
    const y = this.#tensors.create('activationGradient', `∂${value.name}`, value.shape)
    this.calls.push({ kernel: 'add.forward', dims: { size: value.size }, operands: { a, b, y } })
    return y
  }
}

// Which values a plan with f16 storage keeps in half: what flows between kernels in forward and backward. What is
// written or read from outside, what kernels keep as statistics, parameters and their gradients stay f32.

import type { Precision } from '@starling-grid/protocol'
import {
  boundBindings,
  type AdapterTraits,
  type Binding,
  type KernelCall,
  type NamedPass,
} from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import type { DraftPass } from './drafts.ts'
import type { Tensor } from './tensor.ts'

/**
 * The names by which kernels know what flows; everything else (mean, probabilities, logSums …) needs its digits or its
 * range.
 */
const FLOWING = new Set(['x', 'y', 'dy', 'dx', 'a', 'b', 'residual', 'preactivation', 'activated', 'qkv', 'dqkv'])

/** Kernels where gradients begin. */
const LOSS = /\.loss$|^cross_entropy\./

/** What a plan may use of an adapter: matrix units round weights to f16, which a plan in f32 must not. */
export function traitsIn(precision: Precision = 'f32', traits: AdapterTraits): AdapterTraits {
  if (precision === 'f16') return traits
  const { matrixUnits: _none, ...exact } = traits
  return exact
}

/** Storages of the values that are kept in half. */
export function halfStorages(graph: Graph): ReadonlySet<number> {
  const half = new Set<number>()
  const kept = new Set(
    [graph.output, graph.inputGradient, graph.input].flatMap((tensor) => (tensor ? [tensor.storage] : [])),
  )
  const { forward, evaluation, loss, backward, logits = [] } = graph
  for (const call of [...forward, ...evaluation, ...loss, ...backward, ...logits])
    for (const [name, { storage, role, shared }] of tensorsOf(call)) {
      const flows = FLOWING.has(name) && !shared && (role === 'activation' || role === 'activationGradient')
      if (flows) half.add(storage)
      else kept.add(storage)
    }
  return new Set([...half].filter((storage) => !kept.has(storage)))
}

function tensorsOf({ operands }: KernelCall<Tensor>): [string, Tensor][] {
  return Object.entries(operands as Readonly<Record<string, Tensor | undefined>>).flatMap(([name, tensor]) =>
    tensor ? [[name, tensor]] : [],
  )
}

/** The same passes with those values in half, and the gradient at the loss multiplied by the loss scale. */
export function inHalf<P extends NamedPass>(
  drafts: readonly DraftPass<P>[],
  half: ReadonlySet<number>,
): DraftPass<P>[] {
  return drafts.map((draft) => ({ ...draft, pass: passInHalf(draft, half) }))
}

function passInHalf<P extends NamedPass>({ origin, pass, operands }: DraftPass<P>, half: ReadonlySet<number>): P {
  const operandOf = new Map(boundBindings(pass).map((binding, i) => [binding, operands[i]]))
  return {
    ...pass,
    bindings: pass.bindings.map((binding): Binding => {
      const operand = operandOf.get(binding)
      if (operand === undefined || typeof operand === 'string') return binding
      const scaled = LOSS.test(origin.kernel) && operand.role === 'activationGradient'
      return { ...binding, ...(half.has(operand.storage) ? { half: true } : {}), ...(scaled ? { scaled } : {}) }
    }),
  }
}

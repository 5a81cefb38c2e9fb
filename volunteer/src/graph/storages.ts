// The storages that calls name, and calls with some of them renamed. Pure.

import type { KernelCall } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import type { Tensor } from './tensor.ts'

export type Call = KernelCall<Tensor>

/** The call with some storages under other numbers. */
export function renameStorages(call: Call, names: ReadonlyMap<number, number>): Call {
  const renamed = Object.entries(call.operands as Readonly<Record<string, Tensor | undefined>>).map(
    ([name, tensor]) => {
      const storage = tensor && names.get(tensor.storage)
      return [name, storage === undefined ? tensor : { ...tensor, storage }]
    },
  )
  // The compiler cannot follow that the operands keep their names.
  return { ...call, operands: Object.fromEntries(renamed) } as Call
}

export function storagesOf(call: Call): number[] {
  return tensorsOf(call).map(({ storage }) => storage)
}

export function tensorsOf({ operands }: Call): Tensor[] {
  return Object.values(operands as Readonly<Record<string, Tensor | undefined>>).flatMap((tensor) => tensor ?? [])
}

/** No tensor of the graph has this number or a larger one. */
export function firstFreeStorage({ forward, evaluation, loss, backward, logits = [], input, output }: Graph): number {
  const calls = [...forward, ...evaluation, ...loss, ...backward, ...logits]
  const tensors = [input, output, ...calls.flatMap(tensorsOf)]
  return tensors.reduce((max, { id, storage }) => Math.max(max, id, storage), 0) + 1
}

/**
 * Evaluation with values of its own, but for those that the loss reads and the output. Shared with forward, each would
 * seem to live from one to the other, and all at the same time.
 */
export function separateEvaluation(graph: Graph): Graph {
  if (graph.evaluation === graph.forward) return graph
  let next = firstFreeStorage(graph)
  const names = new Map<number, number>()
  const joint = new Set([graph.output.storage, ...graph.loss.flatMap(storagesOf)])
  for (const { role, storage } of graph.evaluation.flatMap(tensorsOf))
    if (role === 'activation' && !joint.has(storage) && !names.has(storage)) names.set(storage, next++)
  return { ...graph, evaluation: graph.evaluation.map((call) => renameStorages(call, names)) }
}

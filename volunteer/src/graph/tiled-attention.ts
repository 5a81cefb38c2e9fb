// Attention that keeps its probabilities becomes attention that does not, where the adapter has tiles for it. GPUs
// compute a score again sooner than they fetch it, and T × T numbers a head need not be kept. Pure: call lists in, call
// lists out.

import type { AttentionDims, KernelCall, KernelCallOf, NamedPass } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import type { VariantSelector } from './choice.ts'
import type { Call } from './storages.ts'
import type { Tensor } from './tensor.ts'

/** Shorter sequences leave most of a tile empty. */
const SHORTEST_LENGTH = 32

/** The same graph with other calls in the same places; `choose` knows which kernels the adapter has. */
export function tileAttention<P extends NamedPass>(graph: Graph, choose: VariantSelector<P>): Graph {
  const results = new Map([...graph.evaluation, ...graph.forward].filter(isKept).map(resultOfKept))
  const tiled = (call: Call): Call => (isTiled(call, choose) ? withoutProbabilities(call, results) : call)
  const forward = graph.forward.map(tiled)
  return {
    ...graph,
    forward,
    evaluation: graph.evaluation === graph.forward ? forward : graph.evaluation.map(tiled),
    backward: graph.backward.map(tiled),
  }
}

type KeptForward = KernelCallOf<'attention.forward', Tensor>
type KeptCall = KeptForward | KernelCallOf<'attention.backward', Tensor>

function isKept(call: Call): call is KeptForward {
  return call.kernel === 'attention.forward'
}

/** Backward names the probabilities and not the result. */
function resultOfKept({ operands: { probabilities, y } }: KeptForward): readonly [number, Tensor] {
  return [probabilities.storage, y]
}

function isTiled<P extends NamedPass>(call: Call, choose: VariantSelector<P>): call is KeptCall {
  if (call.kernel !== 'attention.forward' && call.kernel !== 'attention.backward') return false
  if (call.dims.length < SHORTEST_LENGTH) return false
  const asked: KernelCall<unknown> = {
    kernel: 'flash_attention.forward',
    dims: call.dims,
    operands: { qkv: call.operands.qkv, logSums: undefined, y: undefined },
  }
  return choose(asked, 1).candidate.family === 'shared'
}

function withoutProbabilities(call: KeptCall, results: ReadonlyMap<number, Tensor>): Call {
  const { dims } = call
  const logSums = logSumsFor(dims, call.operands.probabilities)
  if (call.kernel === 'attention.forward') {
    const { qkv, y } = call.operands
    return { kernel: 'flash_attention.forward', dims, operands: { qkv, logSums, y } }
  }
  const { qkv, probabilities, dy, dqkv } = call.operands
  const y = results.get(probabilities.storage)
  if (!y) throw new Error('internal: the gradient of attention that forward does not have')
  return { kernel: 'flash_attention.backward', dims, operands: { qkv, y, logSums, dy, dqkv } }
}

/** What stands in the place of the probabilities: a number a row. */
function logSumsFor({ heads, length }: AttentionDims, probabilities: Tensor): Tensor {
  return { ...probabilities, shape: [heads, length], size: heads * length }
}

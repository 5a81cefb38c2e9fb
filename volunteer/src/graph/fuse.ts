// Fusion: an activation, or the sum with a residual, that alone reads a product's results becomes the product's
// epilogue. An activation's backward becomes that of the gradient which it alone reads. One pass and one value less
// each; the arithmetic and its order stay the same. Pure: call lists in, call lists out.

import type { Activation, KernelCallOf } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import type { Call } from './storages.ts'
import type { Tensor } from './tensor.ts'

type ProductCall = KernelCallOf<'linear.forward', Tensor> | KernelCallOf<'conv2d.forward', Tensor>

/** Activations whose backward reads their output, so that no reader needs the product's former value. */
const ACTIVATIONS: { readonly [K in Call['kernel']]?: Activation } = {
  'relu.forward': 'relu',
  'tanh.forward': 'tanh',
  'sigmoid.forward': 'sigmoid',
  'leaky_relu.forward': 'leaky_relu',
}

const DERIVATIVES: { readonly [K in Call['kernel']]?: Activation } = {
  'relu.backward': 'relu',
  'tanh.backward': 'tanh',
  'sigmoid.backward': 'sigmoid',
  'leaky_relu.backward': 'leaky_relu',
}

/** Gradients that end in an epilogue. */
type GiverName = 'linear.inputGradient' | 'conv2d.inputGradient' | 'avgpool2d.backward' | 'maxpool2d.backward'
type Giver = { [K in GiverName]: KernelCallOf<K, Tensor> }[GiverName]
const GIVERS: ReadonlySet<string> = new Set<GiverName>([
  'linear.inputGradient',
  'conv2d.inputGradient',
  'avgpool2d.backward',
  'maxpool2d.backward',
])

/** The same graph with fewer calls. */
export function fuseGraph(graph: Graph): Graph {
  const readers = readerCounts(graph)
  const forward = fuseCalls(graph.forward, readers)
  const backward = fuseBackward(graph.backward, readers)
  return {
    ...graph,
    forward,
    backward,
    evaluation: graph.evaluation === graph.forward ? forward : fuseCalls(graph.evaluation, readers),
  }
}

/** Storage → calls that read it in the part where most do. What is read from outside counts as read by many. */
type Readers = ReadonlyMap<number, number>

function readerCounts(graph: Graph): Readers {
  const counts = new Map<number, number>()
  const add = (calls: readonly Call[]) => {
    const seen = new Map<number, number>()
    for (const call of calls)
      for (const { storage } of readTensors(call)) seen.set(storage, (seen.get(storage) ?? 0) + 1)
    for (const [storage, count] of seen) counts.set(storage, Math.max(counts.get(storage) ?? 0, count))
  }
  add([...graph.forward, ...graph.loss, ...graph.backward])
  add([...graph.evaluation, ...graph.loss])
  counts.set(graph.output.storage, Infinity)
  return counts
}

/**
 * The tensors of a call but for the result of forward. A gradient counts once more than it is read: for who makes it.
 */
function readTensors({ kernel, operands }: Call): Tensor[] {
  const result = kernel.endsWith('.forward') ? 'y' : undefined
  return Object.entries(operands as Readonly<Record<string, Tensor | undefined>>).flatMap(([name, tensor]) =>
    tensor && name !== result ? [tensor] : [],
  )
}

function fuseCalls(calls: readonly Call[], readers: Readers): Call[] {
  const fused: Call[] = []
  for (const call of calls) {
    const merged = merge(call, (source) => productOf(fused, source, readers))
    // At the place of the later call, where the residual is certainly there.
    if (merged) fused.splice(fused.indexOf(merged.from), 1)
    fused.push(merged?.call ?? call)
  }
  return fused
}

/** The product that makes a value without other readers, as long as its epilogue ends in no activation. */
function productOf(fused: readonly Call[], { storage }: Tensor, readers: Readers): ProductCall | undefined {
  if (readers.get(storage) !== 1) return undefined
  return fused
    .filter(isProduct)
    .find(({ operands, dims }) => operands.y.storage === storage && dims.activation === undefined)
}

function fuseBackward(calls: readonly Call[], readers: Readers): Call[] {
  const fused: Call[] = []
  for (const call of calls) {
    const derivative = DERIVATIVES[call.kernel]
    const { y, dy, dx } = call.operands as { y: Tensor; dy: Tensor; dx: Tensor }
    const from = derivative && giverOf(fused, dy, readers)
    if (from) fused.splice(fused.indexOf(from), 1)
    const slope = call.kernel === 'leaky_relu.backward' ? { slope: call.dims.slope } : {}
    // The compiler cannot follow that kernel, dims and operands come from one gradient.
    fused.push(
      from
        ? ({
            kernel: from.kernel,
            dims: { ...from.dims, ...slope, derivative },
            operands: { ...from.operands, activated: y, dx },
          } as Call)
        : call,
    )
  }
  return fused
}

/** Who makes a gradient that only one call reads. */
function giverOf(fused: readonly Call[], { storage }: Tensor, readers: Readers): Giver | undefined {
  if (readers.get(storage) !== 2) return undefined
  return fused.filter(isGiver).find(({ operands }) => operands.dx.storage === storage)
}

function isGiver(call: Call): call is Giver {
  return GIVERS.has(call.kernel) && (call as Giver).dims.derivative === undefined
}

interface Merged {
  readonly from: ProductCall
  readonly call: Call
}

/** The product with the call's work as its epilogue; undefined where the call stays by itself. */
function merge(call: Call, productFor: (source: Tensor) => ProductCall | undefined): Merged | undefined {
  if (call.kernel === 'add.forward') return mergeSum(call, productFor)
  const activation = ACTIVATIONS[call.kernel]
  if (!activation) return undefined
  const { x, y } = call.operands as { x: Tensor; y: Tensor }
  const from = productFor(x)
  const slope = call.kernel === 'leaky_relu.forward' ? { slope: call.dims.slope } : {}
  return from && { from, call: withEpilogue(from, { ...slope, activation }, { y }) }
}

function mergeSum(
  { operands: { a, b, y } }: KernelCallOf<'add.forward', Tensor>,
  productFor: (source: Tensor) => ProductCall | undefined,
): Merged | undefined {
  // The later branch ends in the product more often: `b` is the branch, `a` what is carried past it.
  for (const [source, residual] of [
    [b, a],
    [a, b],
  ] as const) {
    const from = source.storage === residual.storage ? undefined : productFor(source)
    if (from && from.operands.residual === undefined) return { from, call: withEpilogue(from, {}, { residual, y }) }
  }
  return undefined
}

function withEpilogue(
  { kernel, dims, operands }: ProductCall,
  more: { readonly activation?: Activation; readonly slope?: number },
  changed: { readonly y: Tensor; readonly residual?: Tensor },
): Call {
  // The compiler cannot follow that kernel, dims and operands come from one product.
  return { kernel, dims: { ...dims, ...more }, operands: { ...operands, ...changed } } as Call
}

function isProduct(call: Call): call is ProductCall {
  return call.kernel === 'linear.forward' || call.kernel === 'conv2d.forward'
}

// Fusion: an activation, or the sum with a residual, that alone reads a product's results becomes the product's
// epilogue. An activation's backward becomes that of the gradient which it alone reads. A sum becomes that of a
// dropout, and, of a gradient with what is carried past it, that of a norm's. One pass less each, and mostly one value;
// the arithmetic and its order stay the same. Pure: call lists in, call lists out.

import type { Activation, InputActivation, KernelCallOf } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import type { Call } from './storages.ts'
import type { Tensor } from './tensor.ts'

type ProductCall = KernelCallOf<'linear.forward', Tensor> | KernelCallOf<'conv2d.forward', Tensor>

/** Where backward reads the input of one, the product stores its former value too. */
const ACTIVATIONS: { readonly [K in Call['kernel']]?: Activation } = {
  'relu.forward': 'relu',
  'tanh.forward': 'tanh',
  'sigmoid.forward': 'sigmoid',
  'leaky_relu.forward': 'leaky_relu',
  'gelu.forward': 'gelu',
  'gelu_tanh.forward': 'gelu_tanh',
  'silu.forward': 'silu',
}

const FROM_INPUT: ReadonlySet<Activation> = new Set<InputActivation>(['gelu', 'gelu_tanh', 'silu'])

const DERIVATIVES: { readonly [K in Call['kernel']]?: Activation } = {
  'relu.backward': 'relu',
  'tanh.backward': 'tanh',
  'sigmoid.backward': 'sigmoid',
  'leaky_relu.backward': 'leaky_relu',
  'gelu.backward': 'gelu',
  'gelu_tanh.backward': 'gelu_tanh',
  'silu.backward': 'silu',
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

/** What may end in a sum and in nothing else: dropouts, and in backward norms too → the name of its result. */
const SUMMED: { readonly [K in Call['kernel']]?: 'y' | 'dx' } = {
  'dropout.forward': 'y',
  'layernorm.inputGradient': 'dx',
  'rmsnorm.inputGradient': 'dx',
}

/** The same graph with fewer calls. */
export function fuseGraph(graph: Graph): Graph {
  const { forward, evaluation, loss, backward } = graph
  const inAll = readerCounts(graph, [
    [...forward, ...loss, ...backward],
    [...evaluation, ...loss],
  ])
  const inForward = readerCounts(graph, [
    [...forward, ...loss],
    [...evaluation, ...loss],
  ])
  const fused = fuseCalls(forward, { inAll, inForward })
  return {
    ...graph,
    forward: fused,
    backward: fuseBackward(backward, inAll),
    evaluation: evaluation === forward ? fused : fuseCalls(evaluation, { inAll, inForward }),
  }
}

/** Storage → calls that read it in the part where most do. What is read from outside counts as read by many. */
type Readers = ReadonlyMap<number, number>

interface ForwardReaders {
  readonly inAll: Readers
  readonly inForward: Readers
}

function readerCounts(graph: Graph, parts: readonly (readonly Call[])[]): Readers {
  const counts = new Map<number, number>()
  for (const calls of parts) {
    const seen = new Map<number, number>()
    for (const call of calls)
      for (const { storage } of readTensors(call)) seen.set(storage, (seen.get(storage) ?? 0) + 1)
    for (const [storage, count] of seen) counts.set(storage, Math.max(counts.get(storage) ?? 0, count))
  }
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

function fuseCalls(calls: readonly Call[], { inAll, inForward }: ForwardReaders): Call[] {
  const fused: Call[] = []
  for (const call of calls) {
    const alone = merge(call, (source) => productOf(fused, source, inAll))
    const kept = alone ?? mergeKept(call, (source) => productOf(fused, source, inForward))
    const merged = kept ?? mergeSummed(call, fused, inAll)
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
    const merged = mergeDerivative(call, fused, readers) ?? mergeSummed(call, fused, readers)
    if (merged) fused.splice(fused.indexOf(merged.from), 1)
    fused.push(merged?.call ?? call)
  }
  return fused
}

/** The gradient that the backward of an activation alone reads, with that backward as its epilogue. */
function mergeDerivative(call: Call, fused: readonly Call[], readers: Readers): Merged | undefined {
  const derivative = DERIVATIVES[call.kernel]
  if (!derivative) return undefined
  const { x, y, dy, dx } = call.operands as { x?: Tensor; y?: Tensor; dy: Tensor; dx: Tensor }
  const from = fused.filter(isGiver).find((maker) => isReadOnce(maker.operands.dx, maker, dy, readers))
  const slope = call.kernel === 'leaky_relu.backward' ? { slope: call.dims.slope } : {}
  // The compiler cannot follow that kernel, dims and operands come from one gradient.
  return (
    from && {
      from,
      call: {
        kernel: from.kernel,
        dims: { ...from.dims, ...slope, derivative },
        operands: { ...from.operands, activated: x ?? y, dx },
      } as Call,
    }
  )
}

/** A dropout or a norm's gradient whose result a sum alone reads, with that sum as its epilogue. */
function mergeSummed(call: Call, fused: readonly Call[], readers: Readers): Merged | undefined {
  if (call.kernel !== 'add.forward') return undefined
  const { a, b, y } = call.operands
  for (const [source, residual] of [
    [b, a],
    [a, b],
  ] as const) {
    const from = fused.find((maker) => isReadOnce(summedResult(maker), maker, source, readers))
    const result = from && SUMMED[from.kernel]
    // The compiler cannot follow that kernel and operands come from one call.
    if (result) return { from, call: { ...from, operands: { ...from.operands, residual, [result]: y } } as Call }
  }
  return undefined
}

function summedResult({ kernel, operands }: Call): Tensor | undefined {
  const result = SUMMED[kernel]
  const named = operands as Readonly<Record<string, Tensor | undefined>>
  return result === undefined || named['residual'] ? undefined : named[result]
}

/** Whether a call made the source of another, which alone reads it. The maker of a gradient counts as one, too. */
function isReadOnce(made: Tensor | undefined, { kernel }: Call, { storage }: Tensor, readers: Readers): boolean {
  return made?.storage === storage && readers.get(storage) === (kernel.endsWith('.forward') ? 1 : 2)
}

function isGiver(call: Call): call is Giver {
  return GIVERS.has(call.kernel) && (call as Giver).dims.derivative === undefined
}

interface Merged {
  readonly from: Call
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

/** The same for an activation whose input only backward reads besides: the product stores both. */
function mergeKept(call: Call, productFor: (source: Tensor) => ProductCall | undefined): Merged | undefined {
  const activation = ACTIVATIONS[call.kernel]
  if (!activation || !FROM_INPUT.has(activation)) return undefined
  const { x, y } = call.operands as { x: Tensor; y: Tensor }
  const from = productFor(x)
  return from && { from, call: withEpilogue(from, { activation }, { preactivation: x, y }) }
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
  changed: { readonly y: Tensor; readonly residual?: Tensor; readonly preactivation?: Tensor },
): Call {
  // The compiler cannot follow that kernel, dims and operands come from one product.
  return { kernel, dims: { ...dims, ...more }, operands: { ...operands, ...changed } } as Call
}

function isProduct(call: Call): call is ProductCall {
  return call.kernel === 'linear.forward' || call.kernel === 'conv2d.forward'
}

// A graph that is one kernel call over vectors, so that kernels which no layer uses run through the same planner and
// runner.
import type { KernelCall } from '@starling-grid/shaders'
import type { Graph } from '../src/graph/build.ts'
import { TensorFactory, type Tensor } from '../src/graph/tensor.ts'

/** `lengths` of the operands by name; run it with one sample. Operands can be written before and read after the run. */
export function kernelGraph(
  lengths: Readonly<Record<string, number>>,
  call: (operand: (name: string) => Tensor) => KernelCall<Tensor>,
): { readonly graph: Graph; readonly operand: (name: string) => Tensor } {
  const factory = new TensorFactory()
  const tensors = new Map(
    Object.entries(lengths).map(([name, length]) => [name, factory.create('activation', name, [length])]),
  )
  const operand = (name: string): Tensor => {
    const tensor = tensors.get(name)
    if (!tensor) throw new Error(`the kernel has no operand ${name}`)
    return tensor
  }
  const first = factory.create('input', 'unused', [1])
  const graph: Graph = {
    spec: { name: 'kernel', input: [1], layers: [], loss: 'mse', inputScale: 1 },
    input: first,
    output: first,
    outputGradient: first,
    inputGradient: undefined,
    vocab: undefined,
    keys: undefined,
    mixesSamples: false,
    resident: [],
    lossTensors: undefined,
    parameters: [],
    parameterCount: 0,
    fixed: [],
    forward: [call(operand)],
    evaluation: [],
    loss: [],
    backward: [],
  }
  return { graph, operand }
}

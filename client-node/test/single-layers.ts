// Graphs of single layers, run forward and backward, for tests of kernels against the reference.
import assert from 'node:assert/strict'
import { ReferenceRunner } from '@starling-grid/volunteer'
import { expectClose, type Graph, type GraphRunner, noise } from '@starling-grid/volunteer/testing'

/** y and ∂/∂x of a graph whose output gradient is given, the same numbers for every runner. */
async function throughGraph(
  runner: GraphRunner,
  samples: number,
): Promise<readonly (readonly [string, Float32Array])[]> {
  const { input, output, outputGradient, inputGradient } = runner.graph
  assert.ok(inputGradient)
  const write = [
    [input, noise(input.size * samples, 1).map((value) => 3 * value)],
    [outputGradient, noise(output.size * samples, 2)],
  ] as const
  const [y, dx] = await runner.run({
    samples: samples,
    write,
    parts: ['forward', 'backward'],
    read: [output, inputGradient],
  })
  runner.destroy()
  assert.ok(y && dx)
  return [
    ['y', y],
    ['dx', dx],
  ]
}

/** A runner for GPU kernels against the reference's, on the same numbers. */
export async function compareRunners(
  ours: GraphRunner,
  { samples, tolerance }: { readonly samples: number; readonly tolerance: number },
): Promise<void> {
  const found = await throughGraph(ours, samples)
  const wanted = new Map(await throughGraph(new ReferenceRunner(ours.graph, samples), samples))
  for (const [name, values] of found) expectClose(values, wanted.get(name) ?? [], tolerance, name)
}

type Call = Graph['forward'][number]

/** The graph as it is for long sequences; what would hold probabilities is large enough for one number a row. */
export function withoutProbabilities(graph: Graph): Graph {
  const long = (call: Call): Call => {
    if (call.kernel === 'attention.forward') {
      const { qkv, y, probabilities: logSums } = call.operands
      return { kernel: 'flash_attention.forward', dims: call.dims, operands: { qkv, y, logSums } }
    }
    if (call.kernel !== 'attention.backward') throw new Error(`no attention but ${call.kernel}`)
    const { qkv, dy, dqkv, probabilities: logSums } = call.operands
    return {
      kernel: 'flash_attention.backward',
      dims: call.dims,
      operands: { qkv, y: graph.output, logSums, dy, dqkv },
    }
  }
  const forward = graph.forward.map(long)
  return { ...graph, forward, evaluation: forward, backward: graph.backward.map(long) }
}

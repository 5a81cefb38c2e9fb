// Every backward rule against differences of its forward, at sizes that divide by nothing, batch 1 and one channel
// included.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, parameterLayout, parseModelSpec, type ModelSpec } from '@starling-grid/model'
import { ReferenceRunner } from '../src/cpu/runner.ts'
import { buildGraph } from '../src/graph/build.ts'
import { noise } from '../testing/executor-suite.ts'

/** Small enough to cross few kinks of relu and max, large enough for f32. */
const STEP = 2e-3
const TOLERANCE = 1e-2

const CASES: readonly (readonly [input: number[], layer: object, samples: number])[] = [
  [[7], { type: 'linear', out: 5 }, 1],
  [[1], { type: 'linear', out: 1 }, 3],
  [[3, 5], { type: 'linear', out: 2, bias: false }, 2],
  [[1, 5, 7], { type: 'conv2d', out: 3, kernel: 3 }, 1],
  [[4, 7, 5], { type: 'conv2d', out: 6, kernel: 2, stride: 3, padding: 1, groups: 2 }, 2],
  [[3, 4, 4], { type: 'conv2d', out: 3, kernel: 3, padding: 2, groups: 3, bias: false }, 1],
  [[5, 3, 2], { type: 'conv2d', out: 1, kernel: 1 }, 3],
  [[2, 7, 5], { type: 'maxpool2d', kernel: 3, stride: 2, padding: 1 }, 2],
  [[1, 6, 9], { type: 'maxpool2d', kernel: 2 }, 1],
  [[2, 7, 5], { type: 'avgpool2d', kernel: 3, stride: 2, padding: 1 }, 2],
  [[1, 5, 8], { type: 'avgpool2d', kernel: 2, stride: 3 }, 1],
  [[11], { type: 'relu' }, 3],
  [[11], { type: 'tanh' }, 3],
  [[2, 3], { type: 'sigmoid' }, 1],
  [[11], { type: 'leaky_relu', negative_slope: 0.3 }, 3],
  [[7], { type: 'gelu' }, 3],
  [[1, 5], { type: 'gelu_tanh' }, 2],
  [[1], { type: 'silu' }, 1],
  [[2, 5], { type: 'softmax' }, 3],
  [[1, 1, 1], { type: 'softmax' }, 1],
  [[7], { type: 'layernorm' }, 3],
  [[3, 5], { type: 'layernorm', bias: false }, 2],
  [[2, 6], { type: 'rmsnorm' }, 2],
  [[4, 3, 5], { type: 'groupnorm', groups: 2 }, 2],
  [[1, 2, 3], { type: 'groupnorm', groups: 1 }, 1],
  [[3, 3, 5], { type: 'batchnorm2d' }, 4],
  [[1, 2, 3], { type: 'batchnorm2d' }, 1],
  [[3, 5, 3], { type: 'globalavgpool' }, 2],
  [[1, 1, 1], { type: 'globalavgpool' }, 1],
  [[3, 2, 3], { type: 'parallel', combine: 'concat', branches: [[{ type: 'tanh' }], [], [{ type: 'silu' }]] }, 2],
  [[6], { type: 'parallel', combine: 'swiglu', branches: [[{ type: 'tanh' }], []] }, 3],
  [[1], { type: 'parallel', combine: 'swiglu', branches: [[], []] }, 1],
  [[7], { type: 'scale', factor: 0.3 }, 3],
  [[2, 6], { type: 'rmsnorm', size: 3 }, 2],
  [[5], { type: 'parallel', branches: [[{ type: 'tanh' }], [], [{ type: 'silu' }]] }, 3],
  [[5], { type: 'residual', layers: [{ type: 'gelu' }] }, 1],
  [[7], { type: 'dropout', p: 0.4 }, 3],
  [[1, 5], { type: 'dropout', p: 0 }, 1],
  [[2, 3, 5], { type: 'flatten' }, 2],
  [[5, 12], { type: 'attention', heads: 2, causal: true }, 2],
  [[7, 9], { type: 'attention', heads: 1 }, 1],
  [[257, 6], { type: 'attention', heads: 2, causal: true }, 1],
  [[3, 5], { type: 'positions', context: 4 }, 2],
  [[2, 3, 5], { type: 'transpose' }, 2],
  [[5, 3], { type: 'transpose' }, 1],
  [[3, 5], { type: 'class_token' }, 3],
  [[1, 8], { type: 'class_token' }, 1],
  [[4, 3], { type: 'first_token' }, 2],
  [[5, 6], { type: 'globalavgpool' }, 2],
  [[2, 3, 2], { type: 'upsample' }, 2],
  [[1, 2, 3], { type: 'upsample', scale: 3 }, 1],
]

function modelOf(input: number[], layer: { type?: string }): ModelSpec {
  const learns = /^(linear|conv2d|positions|class_token|\w*norm\w*)$/.test(layer.type ?? '')
  return parseModelSpec({ input, layers: [learns ? { name: 'a', ...layer } : layer] })
}

/** Σ dy · y and its gradients, for inputs x and parameters θ. */
function operator(spec: ModelSpec, samples: number) {
  const graph = buildGraph(spec, { outputGradient: 'given', inputGradient: true })
  const runner = new ReferenceRunner(graph, samples)
  const dy = noise(graph.output.size * samples, 3)
  const { inputGradient } = graph
  assert.ok(inputGradient)
  return {
    graph,
    async run(x: Float32Array, parameters: Float32Array) {
      runner.loadParameters(parameters)
      const gradient = new Float32Array(graph.parameterCount)
      const [y, dx] = await runner.run({
        samples,
        parts: ['forward', 'backward'],
        write: [
          [graph.input, x],
          [graph.outputGradient, dy],
        ],
        read: [graph.output, inputGradient],
        clearGradient: true,
        gradientInto: gradient,
      })
      assert.ok(y && dx)
      gradient.fill(0, parameterLayout(spec).trained) // statistics are measured, not derived
      return { value: y.reduce((sum, element, i) => sum + element * (dy[i] ?? 0), 0), dx, gradient }
    },
  }
}

const plus = (a: Float32Array, b: Float32Array, factor: number) => a.map((value, i) => value + factor * (b[i] ?? 0))
const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0)

for (const [input, layer, samples] of CASES)
  test(`backward is the derivative of forward: ${JSON.stringify(layer)} on [${input}], batch ${samples}`, async () => {
    const spec = modelOf(input, layer)
    const { graph, run } = operator(spec, samples)
    const x = noise(graph.input.size * samples, 1)
    const parameters = initialParameters(spec, 2)
    const at = await run(x, parameters)
    for (const [what, alongX, alongP] of [
      ['x', noise(x.length, 4), new Float32Array(parameters.length)],
      ['parameters', new Float32Array(x.length), noise(parameters.length, 5)],
    ] as const) {
      const [up, down] = [
        await run(plus(x, alongX, STEP), plus(parameters, alongP, STEP)),
        await run(plus(x, alongX, -STEP), plus(parameters, alongP, -STEP)),
      ]
      const difference = (up.value - down.value) / (2 * STEP)
      const derivative = dot(at.dx, alongX) + dot(at.gradient, alongP)
      // relative to the size that the sum could have, since terms cancel
      const scale = Math.hypot(...at.dx) * Math.hypot(...alongX) + Math.hypot(...at.gradient) * Math.hypot(...alongP)
      assert.ok(
        Math.abs(difference - derivative) <= TOLERANCE * scale,
        `∂${what}: ${derivative}, differences say ${difference}`,
      )
    }
  })

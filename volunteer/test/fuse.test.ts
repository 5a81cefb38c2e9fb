// What fusion may merge and what it must leave alone, and that the merged calls compute the same.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, parseModelSpec, type ModelSpec } from '@starling-grid/model'
import { ReferenceRunner } from '../src/cpu/runner.ts'
import { buildGraph, type Graph } from '../src/graph/build.ts'
import { fuseGraph } from '../src/graph/fuse.ts'
import { noise } from '../testing/executor-suite.ts'

const linear = (name: string, out: number) => ({ type: 'linear', name, out })

function model(layers: object[], input = [6]): ModelSpec {
  return parseModelSpec({ input, layers, loss: 'mse' })
}

const kernels = ({ forward }: Graph) => forward.map(({ kernel }) => kernel)

test('an activation after a product becomes its epilogue', () => {
  const graph = fuseGraph(
    buildGraph(model([linear('a', 5), { type: 'relu' }, linear('b', 4), { type: 'sigmoid' }, linear('c', 2)])),
  )
  assert.deepEqual(kernels(graph), ['linear.forward', 'linear.forward', 'linear.forward'])
  assert.deepEqual(
    graph.forward.map(({ dims }) => ('activation' in dims ? dims.activation : undefined)),
    ['relu', 'sigmoid', undefined],
  )
})

test('a residual sum and the activation after it become one epilogue', () => {
  const graph = fuseGraph(
    buildGraph(
      model([linear('a', 6), { type: 'residual', layers: [linear('b', 6)] }, { type: 'tanh' }, linear('c', 1)]),
    ),
  )
  assert.deepEqual(kernels(graph), ['linear.forward', 'linear.forward', 'linear.forward'])
  const [first, second] = graph.forward
  assert.ok(second?.kernel === 'linear.forward' && first?.kernel === 'linear.forward')
  assert.equal(second.operands.residual?.storage, first.operands.y.storage)
})

test('a product that another operator reads too keeps its result', () => {
  const shared = model([linear('a', 6), { type: 'residual', layers: [{ type: 'relu' }, linear('b', 6)] }])
  assert.deepEqual(kernels(fuseGraph(buildGraph(shared))), ['linear.forward', 'relu.forward', 'linear.forward'])
  const output = model([linear('a', 6)])
  assert.deepEqual(kernels(fuseGraph(buildGraph(output))), ['linear.forward'])
})

test('a product stores what goes into an activation too, where the derivative needs it', () => {
  const { forward } = fuseGraph(buildGraph(model([linear('a', 6), { type: 'gelu' }, linear('b', 2)])))
  const [first, second] = forward
  assert.ok(first?.kernel === 'linear.forward' && second?.kernel === 'linear.forward')
  assert.equal(first.dims.activation, 'gelu')
  assert.notEqual(first.operands.preactivation?.storage, first.operands.y.storage)
  assert.equal(second.operands.x.storage, first.operands.y.storage)
})

test('what forward reads besides its activation stays as it is, and so does a sum after one', () => {
  const shared = model([linear('a', 6), { type: 'residual', layers: [{ type: 'gelu' }, linear('b', 6)] }])
  assert.deepEqual(kernels(fuseGraph(buildGraph(shared))), ['linear.forward', 'gelu.forward', 'linear.forward'])
  const late = model([{ type: 'residual', layers: [linear('a', 6), { type: 'relu' }] }])
  assert.deepEqual(kernels(fuseGraph(buildGraph(late))), ['linear.forward', 'add.forward'])
})

const backwards = ({ backward }: Graph) =>
  backward
    .filter(({ kernel }) => !kernel.endsWith('parameterGradient'))
    .map(({ kernel, dims }) => ('derivative' in dims ? `${kernel} ${dims.derivative}` : kernel))

test('the backward of an activation becomes the epilogue of the gradient that it alone reads', () => {
  const spec = model(
    [
      { type: 'conv2d', name: 'a', out: 2, kernel: 2 },
      { type: 'relu' },
      { type: 'maxpool2d', kernel: 2 },
      { type: 'conv2d', name: 'b', out: 3, kernel: 2 },
      { type: 'tanh' },
      { type: 'conv2d', name: 'c', out: 3, kernel: 1 },
      { type: 'sigmoid' },
      { type: 'avgpool2d', kernel: 2 },
      { type: 'flatten' },
      linear('d', 4),
      { type: 'relu' },
      linear('e', 2),
    ],
    [2, 8, 8],
  )
  assert.deepEqual(backwards(fuseGraph(buildGraph(spec))), [
    'linear.inputGradient relu',
    'linear.inputGradient',
    'avgpool2d.backward sigmoid',
    'conv2d.inputGradient tanh',
    'conv2d.inputGradient',
    'maxpool2d.backward relu',
  ])
})

test('a dropout ends in the sum with what is carried past it, in both directions', () => {
  const branch = [linear('b', 6), { type: 'dropout', p: 0.5 }]
  const graph = fuseGraph(
    buildGraph(
      model([
        linear('a', 6),
        { type: 'residual', layers: branch },
        { type: 'residual', layers: [{ type: 'dropout', p: 0.1 }] },
        linear('c', 2),
      ]),
    ),
  )
  assert.deepEqual(kernels(graph), [
    'linear.forward',
    'linear.forward',
    'dropout.forward',
    'dropout.forward',
    'linear.forward',
  ])
  assert.deepEqual(backwards(graph), [
    'linear.inputGradient',
    'dropout.forward',
    'dropout.forward',
    'linear.inputGradient',
    'add.forward',
  ])
})

test('the gradient of a norm ends in the sum with what is carried past it', () => {
  const branch = [{ type: 'layernorm', name: 'norm' }, linear('b', 8), { type: 'gelu_tanh' }, linear('c', 6)]
  const spec = model([linear('a', 6), { type: 'residual', layers: branch }, linear('d', 2)])
  assert.deepEqual(backwards(fuseGraph(buildGraph(spec))), [
    'linear.inputGradient',
    'linear.inputGradient gelu_tanh',
    'linear.inputGradient',
    'layernorm.inputGradient',
  ])
})

test('a gradient that another operator reads or adds to stays as it is', () => {
  const spec = model([linear('a', 6), { type: 'relu' }, { type: 'residual', layers: [linear('b', 6)] }, linear('c', 2)])
  assert.deepEqual(backwards(fuseGraph(buildGraph(spec))), [
    'linear.inputGradient',
    'linear.inputGradient',
    'add.forward',
    'relu.backward',
  ])
  const carried = model([linear('a', 6), { type: 'residual', layers: [{ type: 'relu' }] }, linear('c', 2)])
  assert.deepEqual(
    backwards(fuseGraph(buildGraph(carried))),
    ['linear.inputGradient', 'relu.backward', 'add.forward'],
    'the branch and what is carried past it read one gradient',
  )
})

/** Every epilogue that there is, of both kinds of products. */
const EPILOGUES: readonly ModelSpec[] = [
  model(
    [
      { type: 'conv2d', name: 'a', out: 3, kernel: 2 },
      { type: 'leaky_relu', negative_slope: 0.2 },
      { type: 'residual', layers: [{ type: 'conv2d', name: 'b', out: 3, kernel: 1 }] },
      { type: 'relu' },
      { type: 'maxpool2d', kernel: 2 },
      { type: 'flatten' },
      linear('c', 5),
      { type: 'leaky_relu', negative_slope: 0.3 },
      linear('d', 2),
      { type: 'tanh' },
    ],
    [2, 5, 4],
  ),
  model([
    linear('a', 6),
    {
      type: 'residual',
      layers: [
        { type: 'rmsnorm', name: 'norm' },
        linear('b', 7),
        { type: 'gelu' },
        linear('c', 5),
        { type: 'gelu_tanh' },
        linear('d', 6),
        { type: 'dropout', p: 0.4 },
      ],
    },
    { type: 'silu' },
    linear('e', 2),
  ]),
]

test('fused and unfused graphs compute the same bits', async () => {
  for (const spec of EPILOGUES) await compareFused(spec)
})

async function compareFused(spec: ModelSpec): Promise<void> {
  const whole = buildGraph(spec)
  assert.ok(fuseGraph(whole).forward.length < whole.forward.length)
  assert.ok(fuseGraph(whole).backward.length < whole.backward.length)
  const results = await Promise.all(
    [whole, fuseGraph(whole)].map(async (graph) => {
      const runner = new ReferenceRunner(graph, 3)
      runner.loadParameters(initialParameters(spec, 1))
      const gradient = new Float32Array(graph.parameterCount)
      const { lossTensors } = graph
      assert.ok(lossTensors)
      const [output] = await runner.run({
        samples: 3,
        parts: ['forward', 'loss', 'backward'],
        read: [graph.output],
        clearGradient: true,
        gradientInto: gradient,
        write: [
          [graph.input, noise(3 * graph.input.size, 1)],
          [lossTensors.target, noise(3 * graph.output.size, 2)],
        ],
      })
      return { output, gradient }
    }),
  )
  assert.deepEqual(results[1], results[0])
}

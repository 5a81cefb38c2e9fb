import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  initialVersionState,
  meanOfStep,
  nextVersion,
  outerOptimizer,
  parameterLayout,
  parseModelSpec,
} from '@starling-grid/model'
import type { OptimizerSpec } from '@starling-grid/shaders'

const f32 = Math.fround
const spec = parseModelSpec({
  input: [2, 4, 4],
  layers: [
    { type: 'conv2d', name: 'conv', out: 3, kernel: 3, padding: 1, bias: false },
    { type: 'batchnorm2d', name: 'bn', momentum: 0.25 },
    { type: 'flatten' },
    { type: 'linear', name: 'fc', out: 2 },
  ],
})
const layout = parameterLayout(spec)
const at = (name: string) => layout.entries.find((entry) => entry.name === name) ?? assert.fail(name)
const ramp = (scale: number) => Float32Array.from({ length: layout.total }, (_, i) => f32(scale * ((i % 17) - 8)))

test('statistics lie behind what the optimizer trains, under the names that PyTorch gives them', () => {
  assert.deepEqual(
    layout.entries.map(({ name }) => name),
    ['conv.weight', 'bn.weight', 'bn.bias', 'fc.weight', 'fc.bias', 'bn.running_mean', 'bn.running_var'],
  )
  assert.equal(layout.trained, at('bn.running_mean').offset)
  const { parameters, optimizerState } = initialVersionState(spec, { type: 'adamw', lr: 0.1 }, 1)
  assert.deepEqual([...parameters.subarray(layout.trained)], [0, 0, 0, 1, 1, 1])
  assert.equal(optimizerState.slots[0]?.length, layout.trained)
})

test('a step moves statistics by their momentum towards what was measured, and clips gradients without them', () => {
  const rule = { layout, optimizer: { type: 'sgd', lr: 0.1 } as const }
  const from = initialVersionState(spec, rule.optimizer, 1)
  const to = initialVersionState(spec, rule.optimizer, 2)
  const mean = meanOfStep(rule, ramp(4), { targets: 4, clipNorm: 0.5 })
  assert.ok(Math.abs(Math.hypot(...ramp(1).subarray(0, layout.trained)) * mean.factor - 0.5) < 1e-5)
  nextVersion(rule, from, mean, to)
  for (let i = 0; i < layout.trained; i++)
    assert.equal(
      to.parameters[i],
      f32((from.parameters[i] ?? 0) - f32(f32(0.1) * f32((ramp(1)[i] ?? 0) * mean.factor))),
    )
  assert.ok(
    ramp(1)
      .subarray(layout.trained)
      .some((value) => value !== 0),
  )
  for (let i = layout.trained; i < layout.total; i++) {
    const old = from.parameters[i] ?? 0
    assert.equal(to.parameters[i], f32(old + f32(0.25 * f32((ramp(1)[i] ?? 0) - old))), `statistic ${i}`)
  }
})

test('weight decay for matrices leaves biases and scales alone', () => {
  const optimizer: OptimizerSpec = { type: 'adamw', lr: 0.1, weightDecay: 0.5, decay: 'matrices' }
  const from = initialVersionState(spec, optimizer, 1)
  from.parameters.fill(1, 0, layout.trained)
  const to = initialVersionState(spec, optimizer, 1)
  nextVersion({ layout, optimizer }, from, new Float32Array(layout.total), to)
  for (const { name, offset, kind } of layout.entries.filter((entry) => entry.kind !== 'statistic'))
    assert.equal(to.parameters[offset], kind === 'trained' ? f32(1 - 0.1 * 0.5) : 1, name)
})

test('a round moves parameters by the outer optimizer and leaves the state of the inner one as it is', () => {
  const optimizer: OptimizerSpec = { type: 'adamw', lr: 0.1 }
  const outer = outerOptimizer({ outerLr: 0.7, outerMomentum: 0.9 })
  const rule = { layout, optimizer, outer }
  const from = initialVersionState(spec, optimizer, 1, outer)
  from.optimizerState.slots[0]?.fill(3)
  from.optimizerState.step = 7
  const to = initialVersionState(spec, optimizer, 2, outer)
  const mean = ramp(0.01)
  nextVersion(rule, from, mean, to, 'round')
  const [p = 0, d = 0] = [from.parameters[0], mean[0]]
  // first step of Nesterov: the buffer is d, the direction d + 0.9 d
  assert.ok(Math.abs((to.parameters[0] ?? 0) - (p - 0.7 * 1.9 * d)) < 1e-7)
  assert.deepEqual(to.optimizerState, from.optimizerState)
  assert.equal(to.outerState?.step, 1)
  const { offset } = at('bn.running_mean')
  assert.equal(to.parameters[offset], f32(0 - (mean[offset] ?? 0)))
})

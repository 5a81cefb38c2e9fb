import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, lenet5 } from '@starling-grid/model'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import { executorCases, noise } from '../testing/executor-suite.ts'

for (const { name, run } of executorCases)
  test(`reference executor: ${name}`, () => run(async (spec, options) => createReferenceExecutor(spec, options)))

test('a parameter that is not a number shows in the loss', async () => {
  const executor = createReferenceExecutor(lenet5())
  const parameters = initialParameters(lenet5(), 1)
  parameters[3] = NaN
  executor.loadParameters(parameters)
  const { lossSum } = await executor.evaluate({ samples: 1, x: noise(784, 1), y: Int32Array.of(0) })
  assert.ok(Number.isNaN(lossSum))
})

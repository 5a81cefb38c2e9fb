import { test } from 'node:test'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import { executorCases } from '../testing/executor-suite.ts'

for (const { name, run } of executorCases)
  test(`reference executor: ${name}`, () => run(async (spec, options) => createReferenceExecutor(spec, options)))

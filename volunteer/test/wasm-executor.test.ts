import { test } from 'node:test'
import { createWasmExecutor } from '../src/wasm/executor.ts'
import { executorCases } from '../testing/executor-suite.ts'

for (const { name, run } of executorCases)
  test(`WebAssembly executor: ${name}`, () => run(async (spec, options) => createWasmExecutor(spec, options)))

// AdamW over four million parameters, in bytes moved per second: what a step costs beyond moving its memory. On the
// CPU, where members apply it exactly, against TypedArray.set.
import { applyUpdate, createOptimizerState, type OptimizerSpec } from '@starling-grid/shaders'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const PARAMETERS = 4_000_000
/** p, g, m and v are read, p, m and v are written, 4 bytes each */
const ADAMW_BYTES = 28
/** runs of one round: one takes 10 to 50 ms */
const REPEATS = 8

async function gigabytes(run: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await run()
  return (REPEATS * ADAMW_BYTES * PARAMETERS) / (performance.now() - start) / 1e6
}

export async function adamwOnCpu({ rounds, log }: SuiteOptions): Promise<BenchRow> {
  log('exact adamw on the CPU')
  const spec: OptimizerSpec = { type: 'adamw', lr: 1e-3 }
  const random = () => Float32Array.from({ length: PARAMETERS }, Math.random)
  const [parameters, gradient, next] = [random(), random(), random()]
  const [state, nextState] = [createOptimizerState(spec, PARAMETERS), createOptimizerState(spec, PARAMETERS)]
  const copied = Array.from({ length: ADAMW_BYTES / 4 }, () => ({ from: random(), to: random() }))
  const update = () => applyUpdate(spec, state, parameters, gradient, next, nextState)
  const copy = () => copied.forEach(({ from, to }) => to.set(from))
  const timed =
    (work: () => void): Contender =>
    () =>
      gigabytes(async () => {
        for (let i = 0; i < REPEATS; i++) work()
      })
  const row = {
    name: `adamw exact on the CPU ${PARAMETERS / 1e6} M parameters`,
    adapter: 'CPU, 1 thread',
    unit: 'GB/s',
  }
  return race(row, timed(update), { 'TypedArray.set of 28 bytes per parameter': timed(copy) }, rounds)
}

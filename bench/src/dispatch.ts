// What it costs to keep a GPU fed: JavaScript per dispatch, submits per training step, and a dispatch that waits for
// the one before.
import { compare, type BenchComparison } from './compare.ts'
import type { GpuCalls } from './gpu-calls.ts'
import type { Library, PreparedTask } from './library.ts'
import type { BenchPlace } from './places/place.ts'
import type { BenchRow } from './row.ts'
import { inPlace, type Suite } from './suite.ts'
import type { BenchTask } from './task.ts'

/**
 * a small batch: how many dispatches there are does not depend on it, and a queue that never fills shows the JavaScript
 * alone
 */
const STEP: BenchTask = { kind: 'step', model: 'lenet5', samples: 4 }
/** few enough that one run is short, many enough that its submit does not count */
const CHAIN_LENGTH = 500
/** elements: one workgroup, so that the kernel itself takes no time */
const CHAIN_ELEMENTS = 64

export const dispatchSuite: Suite = (options) =>
  inPlace(options, async (place) => {
    const rows: BenchRow[] = []
    for (const comparison of comparisons(place)) rows.push(await compare(comparison, place, options))
    return rows
  })

function comparisons(place: BenchPlace): BenchComparison[] {
  const only = (library: Library) => library.adapter === place.adapter
  const counted = (name: string, unit: string, of: (calls: GpuCalls, steps: number) => number): BenchComparison => ({
    name,
    unit,
    task: STEP,
    better: 'less',
    only,
    value: (ms) => ms,
    measure: (prepared, repeats) => counting(place, { prepared, repeats, of }),
  })
  return [
    counted('dispatches per step lenet5 b4', 'dispatches', ({ dispatches }, steps) => dispatches / steps),
    counted('submits per step lenet5 b4', 'submits', ({ submits }, steps) => submits / steps),
    counted(
      'JavaScript per dispatch lenet5 b4',
      'µs',
      ({ encodingMs, dispatches }) => (1000 * encodingMs) / dispatches,
    ),
    counted('time in submits per step lenet5 b4', 'µs', ({ submitMs }, steps) => (1000 * submitMs) / steps),
    {
      name: `dependent dispatch of ${CHAIN_LENGTH}`,
      unit: 'µs',
      better: 'less',
      only,
      task: { kind: 'chain', length: CHAIN_LENGTH, elements: CHAIN_ELEMENTS },
      value: (ms) => (1000 * ms) / CHAIN_LENGTH,
    },
  ]
}

interface Count {
  readonly prepared: PreparedTask
  readonly repeats: number
  readonly of: (calls: GpuCalls, steps: number) => number
}

async function counting(place: BenchPlace, { prepared, repeats, of }: Count): Promise<number> {
  const start = await place.gpuCalls()
  await prepared.time(repeats)
  const end = await place.gpuCalls()
  const since = (key: keyof GpuCalls): number => end[key] - start[key]
  return of(
    {
      dispatches: since('dispatches'),
      submits: since('submits'),
      encodingMs: since('encodingMs'),
      submitMs: since('submitMs'),
    },
    repeats,
  )
}

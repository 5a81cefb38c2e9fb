// An executor as a GPU looks from the CPU. It takes its time and none of the cores, and finishes the pieces of a
// gradient one after the other. What it gives back are numbers without sense. On a machine whose only GPU is its CPU,
// exchange and computing otherwise compete for the same cores. Then no order of the two could hide one behind the
// other.
import { setTimeout as delay } from 'node:timers/promises'
import { random32 } from '@starling-grid/protocol'
import type { Executor } from '@starling-grid/volunteer'

/** of a step's time, before backward begins: backward computes twice as much */
const FORWARD = 1 / 3

/** `takes`: for a batch, for people; `msOf`: for so many samples */
export function timedExecutor(parameters: number, takes: string, msOf: (samples: number) => number): Executor {
  const random = random32(1)
  const values = Float32Array.from({ length: parameters }, () => random() / 2 ** 32 - 0.5)
  return {
    adapter: {
      name: `a GPU that takes ${takes}, timed`,
      vendor: 'starling',
      software: false,
      executor: 'reference',
    },
    loadParameters: () => undefined,
    async gradient({ samples }, into, early) {
      const begin = performance.now()
      const until = (share: number): Promise<void> =>
        delay(Math.max(0, begin + msOf(samples) * share - performance.now()))
      let done = 0
      for (const [index, { start, end }] of (early?.ranges ?? [{ start: 0, end: into.length }]).entries()) {
        done += end - start
        await until(FORWARD + ((1 - FORWARD) * done) / into.length)
        into.set(values.subarray(start, end), start)
        early?.onFinal(index)
      }
      return { lossSum: 1, targets: samples, correct: 0 }
    },
    async evaluate({ samples }) {
      await delay(FORWARD * msOf(samples))
      return { lossSum: samples, targets: samples, correct: 0 }
    },
    predict: () => {
      throw new Error('internal: a timed executor predicts nothing')
    },
    destroy: () => undefined,
  }
}

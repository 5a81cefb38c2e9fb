// A volunteer whose machine is slow, or becomes slow while it works: a laptop on battery, a GPU that gets hot. Every
// gradient takes longer, by the samples in it. All else is the production volunteer.
import { setTimeout as pause } from 'node:timers/promises'
import type { VolunteerHost } from '@starling-grid/volunteer'

export const SLOWNESS = ['slow-samples', 'slows-down'] as const
type SlowKind = (typeof SLOWNESS)[number]

/** `slows-down`: samples after which it is that many times slower */
const FIRST_SAMPLES = 200
const TIMES_SLOWER = 10

export function isSlowness(kind: string): kind is SlowKind {
  return SLOWNESS.some((known) => known === kind)
}

/** `msPerSample`: added to every sample's own time */
export function withSlowBlocks(host: VolunteerHost, kind: SlowKind, msPerSample: number): VolunteerHost {
  return {
    ...host,
    async createExecutor(...asked) {
      const executor = await host.createExecutor(...asked)
      let samples = 0
      return {
        ...executor,
        async gradient(batch, into, early) {
          const slower = kind === 'slows-down' && samples >= FIRST_SAMPLES ? TIMES_SLOWER : 1
          samples += batch.samples
          await pause(msPerSample * slower * batch.samples)
          return executor.gradient(batch, into, early)
        },
      }
    },
  }
}

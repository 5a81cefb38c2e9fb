// A grid of the model of scale for tests of plans, and what is drawn of it.
import { DEFAULT_ASYNC } from '@starling-grid/coordinator/run'
import fc from 'fast-check'
import type { Setting } from '../src/scaling/predict.ts'
import { HOMES } from '../src/scaling/profiles.ts'

/** LeNet-5 with 256 samples a step. */
export const LENET5: Setting = {
  mode: 'ring',
  exchange: 'auto',
  roundSteps: 1,
  minVolunteers: 1,
  async: DEFAULT_ASYNC,
  gradientBytes: 246_824,
  exchangeBytes: 246_824,
  stateBytes: 493_648,
  batchBlocks: 32,
  blockSamples: 8,
  stepMs: 2,
  volunteers: 4,
  links: HOMES,
  machines: { name: 'test', samplesPerSecond: [400] },
  churnPerMinute: 0,
  warmUpSeconds: 60,
  seconds: 60,
  seed: 1,
}
export const SAMPLES = 60_000
/** lines from a mobile network to a lab, machines from a software adapter to a desktop */
export const settings = fc.record({
  up: fc.integer({ min: 1, max: 400 }),
  latencyMs: fc.integer({ min: 1, max: 60 }),
  samplesPerSecond: fc.integer({ min: 20, max: 4000 }),
  volunteers: fc.integer({ min: 1, max: 6 }),
  seed: fc.integer({ min: 1, max: 1000 }),
})

export type Drawn = typeof settings extends fc.Arbitrary<infer T> ? T : never

export function setting(
  { up, latencyMs, samplesPerSecond, volunteers, seed }: Drawn,
  changes: Partial<Setting> = {},
): Setting {
  return {
    ...LENET5,
    links: { name: 'drawn', up: up * 125_000, down: 500 * 125_000, latencyMs },
    machines: { name: 'drawn', samplesPerSecond: [samplesPerSecond] },
    volunteers,
    minVolunteers: volunteers,
    seed,
    ...changes,
  }
}

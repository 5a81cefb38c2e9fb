// What holds of every forecast: more and faster machines, faster lines and fewer bytes never cost time.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { dryRun } from '@starling-grid/coordinator'
import fc from 'fast-check'
import { demoJob } from '../src/demo-job.ts'
import { readCrowd } from '../src/plan/crowd.ts'
import { planJob } from '../src/plan/plan.ts'
import { forecast, type Setting } from '../src/scaling/predict.ts'
import { type Drawn, LENET5, SAMPLES, setting, settings } from './plan-setting.ts'

/** What a plan gives up rather than go over to other settings (BATCH_PAYS of plan.ts). */
const SLACK = 1.25

let folder = ''
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'starling-plan-'))
})
after(() => rm(folder, { recursive: true }))

test('the best plan with more machines is no slower than with fewer', { timeout: 300_000 }, async () => {
  const job = await dryRun(demoJob({ stop: { steps: 300 }, seed: 1 }), { dataDir: folder, dataRoot: folder })
  const best = ({ up, latencyMs, samplesPerSecond, volunteers, seed }: Drawn): number => {
    const crowd = readCrowd(`${volunteers} laptops at ${samplesPerSecond} samples/s, ${up}/500 Mbit/s ${latencyMs} ms`)
    return planJob({ job, crowd, churnPerMinute: 0, seed }).best.seconds
  }
  fc.assert(
    fc.property(settings, fc.integer({ min: 1, max: 6 }), (drawn, others) => {
      const [few, many] = [best(drawn), best({ ...drawn, volunteers: drawn.volunteers + others })]
      assert.ok(many <= SLACK * few, `${others} machines more take ${many} s, without them ${few} s`)
    }),
    { numRuns: 5, seed: 13, endOnFailure: true },
  )
})

test('faster machines, faster lines and fewer bytes never make a ring slower', () => {
  fc.assert(
    fc.property(settings, (drawn) => {
      const ring = { exchange: 'ring' } as const
      const { seconds } = forecast(setting(drawn, ring), SAMPLES)
      assert.ok(Number.isFinite(seconds), 'it ends')
      const quicker: readonly Setting[] = [
        setting({ ...drawn, samplesPerSecond: 2 * drawn.samplesPerSecond }, ring),
        setting({ ...drawn, up: 2 * drawn.up }, ring),
        setting(drawn, { ...ring, exchangeBytes: LENET5.exchangeBytes / 4 }),
      ]
      for (const other of quicker) assert.ok(forecast(other, SAMPLES).seconds <= 1.02 * seconds)
    }),
    { numRuns: 4, seed: 13, endOnFailure: true },
  )
})

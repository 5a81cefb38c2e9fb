// A job that asks for f16: who can computes it so, who cannot leaves it by name.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { Grid } from '@starling-grid/cli'
import { createNodeHost } from '@starling-grid/client-node/host'
import { initialParameters, lenet5, parameterCount } from '@starling-grid/model'
import { isGridError, pathTo, type Precision, ROUTES, type RunView } from '@starling-grid/protocol'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

const STEPS = 8
/** until the loss has fallen for certain */
const LONGER = 40
const SAMPLES = 8
const spec = lenet5()

async function gradientIn(precision: Precision): Promise<Float32Array> {
  const host = createNodeHost({ coordinatorUrl: 'http://127.0.0.1:1', executor: 'webgpu' })
  const bounds = { precision, maxBytes: 4e9, onDeviceLost: () => undefined }
  const executor = await host.createExecutor(spec, SAMPLES, bounds)
  try {
    executor.loadParameters(initialParameters(spec, 1))
    const gradient = new Float32Array(parameterCount(spec))
    const x = Float32Array.from({ length: SAMPLES * 28 * 28 }, (_, i) => (i % 17) / 17)
    await executor.gradient(
      { samples: SAMPLES, x, y: Int32Array.from({ length: SAMPLES }, (_, i) => i % 10) },
      gradient,
    )
    return gradient
  } finally {
    executor.destroy()
  }
}

const whole = await gradientIn('f32')
const half = await gradientIn('f16').catch((error: unknown) => {
  if (isGridError(error) && error.code === 'no-f16') return error
  throw error
})
const skip = half instanceof Float32Array ? false : `no adapter here has shader-f16: ${half.message}`

async function isFinished(grid: Grid, job: string): Promise<boolean> {
  const run = (await (await fetch(`${grid.url}${pathTo(ROUTES.job, { id: job })}`)).json()) as RunView
  return run.phase === 'finished'
}

const norm = (values: Float32Array): number => Math.hypot(...values)

test('an adapter with f16 rounds to it, and one without says which feature is missing', () => {
  if (!(half instanceof Float32Array)) return assert.match(half.message, /expected an adapter with .*shader-f16/)
  const deviation = norm(half.map((value, i) => value - (whole[i] ?? 0))) / norm(whole)
  assert.ok(deviation > 1e-5 && deviation < 1e-2, `f16 differs from f32 by ${deviation}`)
})

test(
  'a job in f16 is left, by name, by a volunteer that computes in f32 only, which then trains another job',
  { timeout: 120_000 },
  async ({ signal }) => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      await grid.submit({ ...smallJob({ stop: { steps: STEPS }, minVolunteers: 1 }), precision: 'f16' })
      const volunteer = grid.addVolunteer({ executor: 'reference' })
      while (!volunteer.lines.some((line) => /expected an adapter with shader-f16, which the job requires/.test(line)))
        await delay(20, undefined, { signal })
      const job = await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 1 }))
      while (!(await isFinished(grid, job))) await delay(50, undefined, { signal })
    } finally {
      await grid.stop()
    }
  },
)

test(
  'members that compute in f16 train replicas that end bit-identical, and the loss falls',
  { timeout: 300_000, skip },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit({ ...smallJob({ stop: { steps: LONGER }, minVolunteers: 2 }), precision: 'f16' })
      grid.addVolunteer({ executor: 'webgpu' })
      grid.addVolunteer({ executor: 'webgpu' })
      const run = await finishesWhole(grid, job, LONGER)
      assert.equal(run.checkpoint?.members, 2)
    } finally {
      await grid.stop()
    }
  },
)

// Real processes with a model of several buckets, whose sums travel encoded.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { adapterEnvironment } from '@starling-grid/client-node'
import { finishesWhole, lightJob, QUICK, smallJob } from './small-job.ts'

const STEPS = 24
/** 2.7 MB of parameters: the gradient enters the ring in two buckets */
const WIDE = {
  name: 'wide',
  input: [1, 28, 28],
  layers: [
    { type: 'flatten' },
    { type: 'linear', name: 'fc1', out: 512 },
    { type: 'relu' },
    { type: 'linear', name: 'fc2', out: 512 },
    { type: 'relu' },
    { type: 'linear', name: 'fc3', out: 10 },
  ],
}

test(
  'gradients in eight bits and buckets give bit-identical replicas though a member dies',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit({
        ...lightJob({ stop: { steps: STEPS }, minVolunteers: 3 }),
        model: WIDE,
        encoding: 'int8',
      })
      grid.addVolunteer({ executor: 'reference' })
      grid.addVolunteer({ executor: 'reference' })
      const victim = grid.addVolunteer({ name: 'victim', executor: 'reference' })
      await grid.watch.waitFor('the sixth step', ({ run }) => (run?.version.v ?? 0) >= 6)
      victim.kill('SIGKILL')
      const run = await finishesWhole(grid, job, STEPS)
      assert.equal(run.mode, 'ring')
      assert.equal(run.checkpoint?.members, 2)
    } finally {
      await grid.stop()
    }
  },
)

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`

for (const exchange of ['ring', 'direct'] as const)
  test(
    `in a ${exchange} adapter and CPU encoders train together and end bit-identical`,
    { timeout: 300_000, skip },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const job = await grid.submit({
          ...smallJob({ stop: { steps: 8 }, minVolunteers: 2 }),
          // a block a member: on a slow machine an assignment of more comes in pieces, which the CPU encodes
          ...{ blockSamples: 24, batchBlocks: 2 },
          model: WIDE,
          encoding: 'f16',
          exchange,
        })
        grid.addVolunteer({ executor: 'reference' })
        const said: string[] = []
        grid.addVolunteer({ executor: 'webgpu' }).process.stderr?.on('data', (text) => said.push(String(text)))
        const run = await finishesWhole(grid, job, 8)
        assert.match(said.join(''), /f16 of \d+ floats takes [\d.]+ ms on the adapter and [\d.]+ ms on the CPU/)
        assert.equal(run.checkpoint?.members, 2)
      } finally {
        await grid.stop()
      }
    },
  )

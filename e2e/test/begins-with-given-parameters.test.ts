// Fine-tuning in real processes: a job begins with a version of another. Its replicas stay identical, even when its
// coordinator is killed and the other job is deleted meanwhile. An audit follows it from its version 0.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { auditSteps } from '@starling-grid/cli/audit-steps'
import { witnessPaths } from '@starling-grid/client-node/witness-folder'
import { parameterLayout, parseModelSpec, readParameters } from '@starling-grid/model'
import { digest, jobId, type JobSpec, type JobTerms } from '@starling-grid/protocol'
import { auditChain } from '../src/audit.ts'
import { PACED, QUICK, tinyJob } from './small-job.ts'

const [PARENT_STEPS, STEPS] = [60, 40]
/** A rate that hardly changes what is known already. */
const GENTLE = { type: 'sgd', lr: 0.01 } as const

async function meanLosses(grid: Grid, job: string): Promise<number[]> {
  return (await grid.records(job)).map(({ lossSum, targets }) => lossSum / targets)
}

async function ended(grid: Grid, job: string): Promise<void> {
  await grid.watch.waitFor('the end', ({ run }) => run?.job.id === job && run.phase === 'finished' && run, 300_000)
}

/** SHA-256 of the parameters of the model that people get. */
async function modelOf(grid: Grid, job: string, { model }: JobSpec): Promise<string> {
  const bytes = new Uint8Array(await (await grid.api.export(job)).arrayBuffer())
  return digest(new Uint8Array(readParameters(bytes, parameterLayout(parseModelSpec(model))).buffer))
}

test(
  'a job that begins with a version of another is whole after a kill and without it, and all its steps are proven',
  { timeout: 600_000 },
  async () => {
    const grid = await Grid.start({ timing: { ...QUICK, checkpointMs: 600_000 }, audited: true })
    try {
      const parentJob = tinyJob({ stop: { steps: PARENT_STEPS }, minVolunteers: 2 })
      const parent = await grid.submit(parentJob)
      for (let i = 0; i < 2; i++) grid.addVolunteer(PACED)
      await ended(grid, parent)
      const [known, before] = [await modelOf(grid, parent, parentJob), await meanLosses(grid, parent)]
      const job = { ...tinyJob({ stop: { steps: STEPS }, minVolunteers: 2, optimizer: GENTLE }), seed: 8 }
      const child = await grid.submit({ ...job, from: { job: parent } })
      await grid.watch.waitFor('some steps', ({ run }) => run?.job.id === child && run.version.v >= 5 && run)
      await grid.api.delete(parent)
      await grid.killCoordinator()
      await grid.restartCoordinator()
      await ended(grid, child)
      const records = await grid.records(child)
      assert.deepEqual(
        records.map(({ v }) => v),
        Array.from({ length: STEPS }, (_, i) => i + 1),
      )
      assert.equal(auditChain(records, 0).duplicated, 0, 'a block is in the history twice')
      const { checkpoint } = await grid.run(child)
      assert.deepEqual([checkpoint?.v, checkpoint?.agreeing], [STEPS, 2], 'both replicas are bit-identical')
      const after = await meanLosses(grid, child)
      const [first = 9, last = 9] = [after[0], before.at(-1)]
      assert.ok(first < (before[0] ?? 0) / 2 && first < 2 * last, `it goes on from ${last}, with ${first}`)
      const terms = JSON.parse(await readFile(witnessPaths(grid.witness, jobId(child)).terms, 'utf8')) as JobTerms
      assert.equal(terms.initial, known, 'version 0 is the model of the other job')
      const audit = await auditSteps(grid, child, { executor: 'reference', say: (text) => assert.fail(text) })
      assert.deepEqual([audit.audited, audit.auditFailed, audit.auditReached], [STEPS, 0, true])
    } finally {
      await grid.stop()
    }
  },
)

for (const mode of ['async', 'local'] as const)
  test(`a job in mode ${mode} begins with given parameters, too`, { timeout: 300_000 }, async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const parent = await grid.submit(tinyJob({ stop: { steps: PARENT_STEPS }, minVolunteers: 1 }))
      grid.addVolunteer({ executor: 'reference' })
      await ended(grid, parent)
      const before = await meanLosses(grid, parent)
      const job = { ...tinyJob({ stop: { steps: 8 }, minVolunteers: 1, mode, optimizer: GENTLE }), seed: 8 }
      const child = await grid.submit({ ...job, from: { job: parent } })
      await ended(grid, child)
      const [first = 9] = await meanLosses(grid, child)
      assert.ok(first < (before[0] ?? 0) / 2, `it goes on from ${before.at(-1)}, with ${first}`)
    } finally {
      await grid.stop()
    }
  })

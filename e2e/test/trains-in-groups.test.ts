// Real processes that train in rounds of several inner steps, each as a group of its own.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { Grid } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { QUICK, smallJob, tinyJob } from './small-job.ts'

const EPOCHS = 3
/** of an epoch: 9,000 digits */
const BLOCKS = 1125
const INNER_STEPS = 8
/** Of a version one member fetches from the coordinator, and the others from members. */
const PASSED_ON = { ...QUICK, versionSeeds: 1, easyBytesPerMs: 0 }
/** as halves, of 25 thousand parameters */
const VERSION_BYTES = 50_000
/** of ten classes: chance is 0.1 */
const LEARNED = 0.8

test(
  'groups learn the digits in outer rounds; a killed member loses no block and doubles none',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: PASSED_ON })
    try {
      const job = await grid.submit({
        ...tinyJob({ stop: { epochs: EPOCHS }, minVolunteers: 3 }),
        mode: 'async',
        groups: { innerSteps: INNER_STEPS },
        encoding: 'int8',
        evaluate: { everyEpochs: EPOCHS },
      })
      for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'wasm' })
      const victim = grid.addVolunteer({ name: 'victim', executor: 'wasm' })
      await grid.watch.waitFor('some outer versions', ({ run }) => (run?.version.v ?? 0) >= 4)
      victim.kill('SIGKILL')
      const run = await grid.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run, 250_000)
      const records = await grid.records(job)
      const { lost, duplicated } = auditChain(records, EPOCHS * BLOCKS)
      assert.deepEqual({ lost, duplicated }, { lost: 0, duplicated: 0 })
      assert.ok(records.length < (EPOCHS * BLOCKS) / INNER_STEPS, `${records.length} versions`)
      assert.ok(
        grid.watch.members.some(({ bytesReceived }) => bytesReceived > VERSION_BYTES),
        'members pass versions on',
      )
      assert.ok((run.lastValidation?.accuracy ?? 0) > LEARNED, `accuracy ${run.lastValidation?.accuracy}`)
    } finally {
      await grid.stop()
    }
  },
)

/** Of the whole epoch, in one round: hundreds of inner steps, which none of the tries below waits for. */
const ENDLESS = { innerSteps: 170 }
const TRIES = 8

test('who leaves in the middle of a round hands in what it learned', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = await grid.submit({
      ...smallJob({ stop: { epochs: 1 }, minVolunteers: 1 }),
      mode: 'async',
      groups: ENDLESS,
      encoding: 'sparse2',
    })
    let blocks = 0
    for (let i = 1; i <= TRIES && blocks === 0; i++) {
      // plain TypeScript: on no machine is a round of it over before the last try ends
      const { process, kill } = grid.addVolunteer({ name: `leaver ${i}`, executor: 'reference' })
      await grid.watch.waitFor(
        'a round under way',
        ({ run }) => run?.members.some(({ activity }) => activity === 'computing'),
        100_000,
      )
      await delay(400 * i) // some inner steps
      kill('SIGINT')
      await once(process, 'exit')
      blocks = (await grid.records(job)).reduce((sum, record) => sum + record.blocks.length, 0)
    }
    assert.ok(blocks > 0 && blocks < ENDLESS.innerSteps * 6, `${blocks} blocks are in versions`)
    const records = await grid.records(job)
    assert.equal(auditChain(records, blocks).duplicated, 0)
    assert.equal(records.length, 1, 'its push alone made a version')
  } finally {
    await grid.stop()
  }
})

// Files of a data folder that are damaged while a run goes on: named, left out, and the run goes on without them.
import assert from 'node:assert/strict'
import { rm, truncate } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { trainingBlock } from '@starling-grid/protocol'
import { smallJob, startCoordinator, submit, temporaryFolder, until, volunteer } from './fixture.ts'

test("a shard that lost a byte on the coordinator's disk is found, and its blocks are set aside", async () => {
  const dataDir = await temporaryFolder()
  const { url } = await startCoordinator({ dataDir })
  await submit(url, smallJob({ stop: { epochs: 1000 }, blockSamples: 64 }))
  const fakes = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
  const { terms } = (await until(url, 'the ring', (run) => run.phase === 'ring'), fakes[0] ?? assert.fail())
  const shard = terms?.dataset.train.at(-1) ?? assert.fail()
  const blocks = Math.ceil(shard.samples / 64)
  const all = (terms?.dataset.train ?? []).reduce((sum, { samples }) => sum + Math.ceil(samples / 64), 0)
  fakes[0]?.send({
    type: 'unreadable',
    blocks: [trainingBlock(900, all - 1)],
    code: 'shard-corrupt',
    message: 'a lie: the shard is whole',
  })
  const whole = await until(url, 'steps', (run) => run.version.v > 3)
  assert.equal(whole.queue.quarantined, 0)
  await new Promise((resolve) => setTimeout(resolve, 5100)) // a look is believed for five seconds
  await truncate(join(dataDir, 'blobs', shard.sha256), 100)
  fakes[0]?.send({ type: 'unreadable', blocks: [trainingBlock(900, all - 1)], code: 'shard-corrupt', message: 'test' })
  const { version } = await until(url, 'blocks to be set aside', (run) => run.queue.quarantined === blocks)
  await until(url, 'more steps', (run) => run.version.v > version.v + 3 || run.reason.startsWith('paused: most blocks'))
})

test('a checkpoint whose file is gone is given up when a member asks for it, so that an older one serves', async () => {
  const dataDir = await temporaryFolder()
  const { url, runs } = await startCoordinator({ dataDir })
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 }, blockSamples: 64 }))
  const [fake] = [volunteer(url, { stepMs: 200 }), volunteer(url, { stepMs: 200 })]
  await until(url, 'a checkpoint', (run) => run.checkpoint !== null)
  const { state } = runs.find(id) ?? assert.fail()
  const newest = state.checkpoints.at(-1) ?? assert.fail()
  await rm(join(dataDir, 'blobs', newest.blob ?? assert.fail('it has a file')))
  const answer = await fake.request(`/api/jobs/${id}/versions/${newest.version.id}`)
  assert.notEqual(answer.status, 200)
  assert.ok(!state.checkpoints.some(({ version }) => version.id === newest.version.id), 'it is no checkpoint any more')
})

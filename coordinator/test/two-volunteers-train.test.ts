// A whole run over real sockets: two volunteers that follow the protocol by hand, in a ring and through the parameter
// server.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readParameters } from '@starling-grid/model'
import { pathTo, readSafetensors, ROUTES, type StepRecord } from '@starling-grid/protocol'
import { OWNER, recordsOf, runOf, smallJob, startCoordinator, submit, TOKEN, until, volunteer } from './fixture.ts'

const STEPS_PER_EPOCH = 9
const BLOCKS = 36

function assertEachBlockOnce(records: readonly StepRecord[], epochs: number): void {
  const blocks = records.flatMap((record) => record.blocks)
  assert.equal(new Set(blocks).size, blocks.length, 'no block twice')
  assert.equal(blocks.length, BLOCKS * epochs, 'every block once an epoch')
}

test('two members train every block once an epoch, validate, and leave a model that both hold', async () => {
  const { url } = await startCoordinator()
  const { status, id } = await submit(url, smallJob())
  assert.equal(status, 201)
  const [first, second] = [volunteer(url, { name: 'first' }), volunteer(url, { name: 'second' })]
  const [finished] = await Promise.all([first.heard('finished'), second.heard('finished')])
  assert.equal(finished.version.v, 2 * STEPS_PER_EPOCH)

  const run = await runOf(url, id)
  assert.deepEqual(
    [run.phase, run.version.v, run.samplesCommitted, run.samplesExpected],
    ['finished', 18, 18_000, 18_000],
  )
  assert.deepEqual([run.checkpoint?.v, run.checkpoint?.witnessed, run.checkpoint?.agreeing], [18, true, 2])
  assertEachBlockOnce(await recordsOf(url, id), 2)

  const model = await fetch(url + (run.exportPath ?? ''), { headers: OWNER })
  assert.match(model.headers.get('content-disposition') ?? '', /small-digits-[0-9a-f]{6}-v18\.safetensors/)
  const bytes = new Uint8Array(await model.arrayBuffer())
  assert.deepEqual(readParameters(bytes, first.form.layout), first.held?.parameters)
  assert.equal(readSafetensors(bytes).metadata['accuracy'], '0.5')
})

test('a job that is submitted after the volunteers came reaches them', async () => {
  const { url } = await startCoordinator()
  const fakes = [volunteer(url), volunteer(url)]
  for (const fake of fakes) assert.equal((await fake.heard('welcome')).job, null)
  await submit(url, smallJob({ stop: { epochs: 1 } }))
  for (const fake of fakes) assert.equal((await fake.heard('finished')).version.v, STEPS_PER_EPOCH)
})

test('a member that is cut off costs no block, and one that comes later is admitted', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 6 } }))
  const [stays, leaves] = [volunteer(url, { stepMs: 60 }), volunteer(url, { stepMs: 60, name: 'leaves' })]
  await until(url, 'the first steps', (run) => run.version.v >= 5)
  leaves.socket.terminate()
  await until(url, 'a ring of one', (run) => run.members.length === 1 && run.phase === 'ring')
  const late = volunteer(url, { stepMs: 5 })
  await late.heard('start')
  await stays.heard('finished')
  const run = await runOf(url, id)
  assertEachBlockOnce(await recordsOf(url, id), 6)
  assert.ok(run.departed.some(({ name, expected }) => name === 'leaves' && !expected))
})

test('in async mode pushes become versions, and what the server wrote is what a volunteer can download', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: 1 } }))
  const fakes = [volunteer(url), volunteer(url)]
  await Promise.all(fakes.map((fake) => fake.heard('finished')))
  const run = await runOf(url, id)
  assert.equal(run.mode, 'async')
  assert.equal(
    fakes.reduce((sum, { pushes }) => sum + pushes, 0),
    STEPS_PER_EPOCH,
  )
  assertEachBlockOnce(await recordsOf(url, id), 1)
  assert.equal(run.checkpoint?.v, STEPS_PER_EPOCH)
})

test('only the owner ends a run early: its epoch is finished, validated and written', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 } }))
  for (let i = 0; i < 2; i++) volunteer(url, { stepMs: 20 })
  await until(url, 'some steps', ({ version }) => version.v >= 3)
  const stop = (headers: Record<string, string>): Promise<Response> =>
    fetch(`${url}${pathTo(ROUTES.stop, { id })}`, { method: 'POST', headers })
  assert.equal((await stop({})).status, 401)
  const answer = await stop({ authorization: `Bearer ${TOKEN}` })
  const { epochs } = (await answer.json()) as { epochs: number }
  assert.equal(answer.status, 202)
  const run = await until(url, 'the end', ({ phase }) => phase === 'finished')
  assert.deepEqual([run.job.epochs, run.version.v, run.samplesCommitted], [epochs, 9 * epochs, run.samplesExpected])
  assert.ok(epochs < 1000 && run.checkpoint?.v === run.version.v)
})

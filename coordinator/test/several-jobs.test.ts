// Several jobs on one coordinator: messages name theirs, ends reach all volunteers that they concern.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import type { WatchMessage } from '@starling-grid/protocol'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { QUICK, runOf, smallJob, startCoordinator, submit, until, volunteer, watch } from './fixture.ts'

/** Says hello and nothing more by itself. */
async function quiet(url: string): Promise<FakeVolunteer> {
  const fake = volunteer(url, { obedient: false })
  await once(fake.socket, 'open')
  fake.hello()
  await fake.heard('welcome')
  return fake
}

const READY = {
  type: 'ready',
  adapter: { name: 'fake', vendor: 'test', software: true, executor: 'reference' },
  samplesPerSecond: 100,
}

test('READY of one job never makes a member of another, and neither do its later messages', async () => {
  const { url } = await startCoordinator()
  const first = await submit(url, smallJob({ minVolunteers: 3 }))
  const fake = await quiet(url)
  const second = await submit(url, smallJob({ minVolunteers: 3, seed: 4 }))
  const { job } = await fake.heard('job')
  assert.equal(job.id, second.id)
  fake.raw({ ...READY, job: first.id, modelHash: job.modelHash }) // the model is the same
  fake.raw({ type: 'state', job: first.id, fence: 1, generation: 1, claim: null })
  fake.raw({
    type: 'heartbeat',
    job: first.id,
    samplesPerSecond: 1e6,
    activity: 'of the other job',
    bytesSent: 0,
    bytesReceived: 0,
  })
  fake.raw({ type: 'lease-request', job: 'never-submitted', modeEpoch: 0 })
  assert.match((await fake.heard('refused')).message, /never-submitted/, 'what was said before it is taken by now')
  assert.equal(fake.messages.filter(({ type }) => type === 'refused').length, 1, 'what crossed the offer is ignored')
  assert.match((await runOf(url, second.id)).reason, /waiting for volunteers/)
  fake.raw({ ...READY, job: second.id, modelHash: job.modelHash })
  const run = await until(
    url,
    'the member',
    ({ job, members }) => job.id === second.id && (members[0]?.adapter ?? null) !== null,
  )
  assert.match(run.reason, /waiting for 2 more volunteers/)
  assert.equal(run.members[0]?.samplesPerSecond, 100)
})

test('the end of a run reaches volunteers that only prepared for it, and those whose READY comes later', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ epochs: 1 }))
  const preparing = await quiet(url)
  const members = [volunteer(url), volunteer(url)]
  await Promise.all(members.map((fake) => fake.heard('finished')))
  const told = await preparing.heard('finished')
  assert.equal('job' in told && told.job, id)
  assert.equal(preparing.messages.filter(({ type }) => type === 'finished').length, 1)
  preparing.raw({ ...READY, job: id, modelHash: (await preparing.heard('welcome')).job?.modelHash })
  while (preparing.messages.filter(({ type }) => type === 'finished').length < 2) await preparing.next('another end')
  assert.deepEqual((await runOf(url, id)).phase, 'finished')
})

test('what a member said before it heard of a job between is ignored when its own is offered again', async () => {
  const { url } = await startCoordinator()
  const first = await submit(url, smallJob({ minVolunteers: 4 }))
  const fake = await quiet(url)
  const { job } = await fake.heard('welcome')
  fake.raw({ ...READY, job: first.id, modelHash: job?.modelHash })
  await until(
    url,
    'the member',
    ({ job: { id }, members }) => id === first.id && (members[0]?.adapter ?? null) !== null,
  )
  const second = await submit(url, smallJob({ epochs: 1, seed: 4 }))
  await fake.heard('job', ({ job: { id } }) => id === second.id)
  const others = [volunteer(url), volunteer(url)]
  await Promise.all(others.map((other) => other.heard('finished')))
  await fake.heard('job', ({ job: { id } }) => id === first.id)
  fake.raw({ type: 'lease-request', job: first.id, modeEpoch: 0 })
  fake.raw({ type: 'lease-request', job: 'never-submitted', modeEpoch: 0 })
  assert.match((await fake.heard('refused')).message, /never-submitted/, 'what was said before it is taken by now')
})

test('what a member said before it heard of the end of its run is ignored, and no refusal', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ epochs: 1 }))
  const [member, other] = [volunteer(url), volunteer(url)]
  await Promise.all([member.heard('finished'), other.heard('finished')])
  const late = { fence: 1, generation: 1, step: 99, blamed: null, links: [], code: 'link-lost', message: 'late' }
  member.raw({ type: 'abort', job: id, why: 'own', ...late })
  member.raw({ type: 'lease-request', job: 'never-submitted', modeEpoch: 0 })
  assert.match((await member.heard('refused')).message, /never-submitted/, 'what was said before it is taken by now')
  assert.equal(member.messages.filter(({ type }) => type === 'refused').length, 1)
})

test(
  'a new job waits until the older one wrote its head; when the new one ends the older goes on, and repeats nothing',
  { timeout: 240_000 },
  async () => {
    const { url } = await startCoordinator({ timing: { ...QUICK, checkpointMs: 3_600_000 } })
    const older = await submit(url, smallJob({ epochs: 20 }))
    const fakes = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
    await until(url, 'some steps', ({ version }) => version.v >= 12)
    const newer = await submit(url, smallJob({ epochs: 1, seed: 4 }))
    await Promise.all(fakes.map((fake) => fake.heard('job', ({ job }) => job.id === newer.id)))
    const paused = await runOf(url, older.id)
    assert.ok(paused.version.v >= 12)
    assert.equal(paused.checkpoint?.v, paused.version.v, 'every committed step is in the checkpoint')
    await Promise.all(fakes.map((fake) => fake.heard('finished')))
    const after = await until(
      url,
      'more steps of the older job',
      ({ job, version }) => job.id === older.id && version.v > paused.version.v + 3,
    )
    const { events } = await snapshot(url)
    assert.deepEqual(
      events.filter(({ kind }) => kind === 'rewind'),
      [],
    )
    assert.ok(after.samplesCommitted > paused.samplesCommitted)
    assert.equal((await runOf(url, newer.id)).phase, 'finished')
  },
)

async function snapshot(url: string): Promise<Extract<WatchMessage, { type: 'snapshot' }>> {
  const { messages, stop } = watch(url)
  for await (const message of messages)
    if (message.type === 'snapshot') {
      stop()
      return message
    }
  throw new Error('the stream ended without a snapshot')
}

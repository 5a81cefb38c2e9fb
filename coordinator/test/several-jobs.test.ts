// Several jobs on one coordinator: messages name theirs, ends reach all volunteers that they concern.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { join } from 'node:path'
import { test } from 'node:test'
import { pathTo, ROUTES, type RunView, type WatchMessage } from '@starling-grid/protocol'
import Database from 'libsql'
import type { FakeVolunteer } from './fake-volunteer.ts'
import {
  OWNER,
  QUICK,
  runOf,
  smallJob,
  startCoordinator,
  submit,
  temporaryFolder,
  until,
  volunteer,
  watch,
} from './fixture.ts'

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
  const { url, runs } = await startCoordinator()
  const first = await submit(url, smallJob({ volunteers: { min: 3 } }))
  const fake = await quiet(url)
  // Neither can start with one volunteer: it prepares for the one that comes first.
  const second = await submit(url, smallJob({ volunteers: { min: 3 }, seed: 4, priority: 1 }))
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
  assert.match((await runOf(url, second.id)).reason, /waits for 2 more volunteers/)
  assert.equal(runs.find(first.id)?.state.members.size, 0, 'nor of the job that it names and was not offered last')
  fake.raw({ ...READY, job: second.id, modelHash: job.modelHash })
  const run = await until(
    url,
    'the member',
    ({ job, members }) => job.id === second.id && (members[0]?.adapter ?? null) !== null,
  )
  assert.match(run.reason, /waits for 2 more volunteers/)
  assert.equal(run.members[0]?.samplesPerSecond, 100)
  const unreadable = { type: 'unreadable', blocks: ['0:0'], code: 'shard-corrupt', message: 'no such file' }
  fake.raw({ ...unreadable, job: first.id })
  fake.raw({ ...unreadable, job: second.id })
  const told = (): string[] =>
    (runs.find(second.id)?.history.events ?? []).flatMap(({ text }) => (/cannot read/.test(text) ? [text] : []))
  await until(url, 'what is said of its own job', () => told().length > 0)
  assert.equal(told().length, 1, 'what it says of the other job reaches no run')
})

test('the end of a run reaches volunteers that only prepared for it, and those whose READY comes later', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 } }))
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
  const first = await submit(url, smallJob({ volunteers: { min: 4 } }))
  const fake = await quiet(url)
  const { job } = await fake.heard('welcome')
  fake.raw({ ...READY, job: first.id, modelHash: job?.modelHash })
  await until(
    url,
    'the member',
    ({ job: { id }, members }) => id === first.id && (members[0]?.adapter ?? null) !== null,
  )
  const second = await submit(url, smallJob({ stop: { epochs: 1 }, seed: 4, priority: 1 }))
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
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 } }))
  const [member, other] = [volunteer(url), volunteer(url)]
  await Promise.all([member.heard('finished'), other.heard('finished')])
  const late = { fence: 1, generation: 1, step: 99, blamed: null, links: [], code: 'link-lost', message: 'late' }
  member.raw({ type: 'abort', job: id, why: 'own', ...late })
  member.raw({ type: 'lease-request', job: 'never-submitted', modeEpoch: 0 })
  assert.match((await member.heard('refused')).message, /never-submitted/, 'what was said before it is taken by now')
  assert.equal(member.messages.filter(({ type }) => type === 'refused').length, 1)
})

test(
  'a paused job writes its head before its volunteers go to another one; later it goes on, and repeats nothing',
  { timeout: 240_000 },
  async () => {
    const { url } = await startCoordinator({ timing: { ...QUICK, checkpointMs: 3_600_000 } })
    const older = await submit(url, smallJob({ stop: { epochs: 20 } }))
    const fakes = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
    await until(url, 'some steps', ({ version }) => version.v >= 12)
    const newer = await submit(url, smallJob({ stop: { epochs: 1 }, seed: 4 }))
    assert.deepEqual((await runOf(url, newer.id)).wait, {
      missing: 2,
      elsewhere: [{ job: 'Small digits', priority: 0, volunteers: 2 }],
    })
    await tell(url, ROUTES.pause, older.id)
    await Promise.all(fakes.map((fake) => fake.heard('job', ({ job }) => job.id === newer.id)))
    const paused = await runOf(url, older.id)
    assert.ok(paused.version.v >= 12)
    assert.equal(paused.checkpoint?.v, paused.version.v, 'every committed step is in the checkpoint')
    await tell(url, ROUTES.resume, older.id)
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

test('a volunteer that comes back while its job is paused gets the job when that goes on', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ volunteers: { min: 1 } }))
  await tell(url, ROUTES.pause, id)
  const fake = volunteer(url, { obedient: false })
  await once(fake.socket, 'open')
  fake.hello({ job: id })
  assert.equal((await fake.heard('welcome')).job, null)
  await tell(url, ROUTES.resume, id)
  assert.equal((await fake.heard('job')).job.id, id)
})

test('a job of a higher priority gets a volunteer of a running job between steps, and no step is lost', async () => {
  const { url } = await startCoordinator()
  const older = await submit(url, smallJob({ stop: { epochs: 20 }, volunteers: { min: 1 } }))
  const fakes = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
  await until(
    url,
    'both members',
    ({ version, phase, members }) => version.v >= 6 && phase === 'ring' && members.length === 2,
  )
  const urgent = await submit(
    url,
    smallJob({ stop: { epochs: 1 }, seed: 4, priority: 5, volunteers: { min: 1, max: 1 } }),
  )
  const moved = await Promise.race(
    fakes.map((fake) => fake.heard('job', ({ job }) => job.id === urgent.id).then(() => fake)),
  )
  const stayed = fakes.find((fake) => fake !== moved)
  assert.ok(
    moved.messages.some(({ type }) => type === 'last-step'),
    'it ended the step with the others',
  )
  const left = await runOf(url, older.id)
  assert.deepEqual(
    left.departed.map(({ reason, expected }) => [reason, expected]),
    [['went on to another job', true]],
  )
  assert.equal(
    stayed?.messages.some((message) => message.type === 'job'),
    false,
    'the other one stays',
  )
  await moved.heard('finished')
  assert.equal((await runOf(url, urgent.id)).phase, 'finished')
  const back = await moved.heard('job', ({ job }) => job.id === older.id)
  assert.equal(back.job.id, older.id, 'afterwards it works for the older one again')
})

test('volunteers that come back after a restart of the coordinator find the jobs that they worked for', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ dataDir })
  const jobs = []
  for (const priority of [0, 3])
    jobs.push(
      await submit(
        first.url,
        smallJob({ stop: { epochs: 50 }, seed: priority, priority, volunteers: { min: 1, max: 1 } }),
      ),
    )
  const fakes = [volunteer(first.url, { stepMs: 20 }), volunteer(first.url, { stepMs: 20 })]
  for (const { id } of jobs) await moreSteps(first.url, id, 3)
  const terms = fakes.map((fake) => fake.terms?.id)
  assert.equal(new Set(terms).size, 2, 'one for each')
  await first.stop()
  const second = await startCoordinator({ dataDir })
  for (const { id } of jobs) {
    // by itself the first would get the job of the higher priority
    const fake = volunteer(second.url, { obedient: false })
    await once(fake.socket, 'open')
    fake.hello({ again: true, job: id })
    assert.equal((await fake.heard('welcome')).job?.id, id)
  }
})

test('a volunteer whose owner chose a job gets that one, and is refused where there is none of that name', async () => {
  const { url } = await startCoordinator()
  const chosen = await submit(url, smallJob({ volunteers: { min: 3 } }))
  await submit(url, smallJob({ seed: 4, priority: 9, volunteers: { min: 1 } }))
  const greet = async (hello: Record<string, unknown>): Promise<FakeVolunteer> => {
    const fake = volunteer(url, { obedient: false })
    await once(fake.socket, 'open')
    fake.hello(hello)
    return fake
  }
  const lent = await greet({ job: chosen.id, only: true })
  assert.equal((await lent.heard('welcome')).job?.id, chosen.id)
  const lost = await greet({ job: 'no-such-job', only: true })
  const { code, message, fatal } = await lost.heard('refused')
  assert.deepEqual([code, fatal], ['usage', true])
  assert.match(message, /expected a job of this coordinator, got no-such-job/)
})

test('a volunteer that declines a job is given another one', async () => {
  const { url } = await startCoordinator()
  const heavy = await submit(url, smallJob({ priority: 9 }))
  const light = await submit(url, smallJob({ seed: 4 }))
  const fake = volunteer(url, { obedient: false })
  await once(fake.socket, 'open')
  fake.hello({ declines: [heavy.id] })
  assert.equal((await fake.heard('welcome')).job?.id, light.id)
})

test('the name of a job is told to its owner, and on no page of another job', async () => {
  const { url } = await startCoordinator()
  const running = await submit(url, smallJob({ name: 'Secret plans', stop: { epochs: 50 }, priority: 5 }))
  const fakes = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
  await Promise.all(fakes.map((fake) => fake.heard('start')))
  const waiting = await submit(url, smallJob({ name: 'In the open', public: true, seed: 4 }))
  assert.equal(
    (await runOf(url, waiting.id)).reason,
    'waits for 2 more volunteers; 2 work for `Secret plans` (priority 5)',
  )
  const stranger = (await (await fetch(`${url}${pathTo(ROUTES.job, { id: waiting.id })}`)).json()) as RunView
  assert.equal(stranger.reason, 'waits for 2 more volunteers; 2 work for another job (priority 5)')
  assert.doesNotMatch(JSON.stringify(stranger), /Secret/)
  assert.ok(running.id !== waiting.id)
})

test('a job that was stored with minVolunteers still opens, with that minimum', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ dataDir })
  const { id } = await submit(first.url, smallJob({ volunteers: { min: 4 } }))
  await first.stop()
  const file = new Database(join(dataDir, 'state.db'))
  const { description } = file.prepare('SELECT description FROM jobs').get() as { description: string }
  const older = description.replace('"volunteers":{"min":4}', '"minVolunteers":4')
  assert.notEqual(older, description)
  file.prepare('UPDATE jobs SET description = ?').run(older)
  file.close()
  const second = await startCoordinator({ dataDir })
  assert.equal((await runOf(second.url, id)).job.volunteers.min, 4)
})

test('a job with the old name of a field, or with less room than it needs, is refused with what to write', async () => {
  const { url } = await startCoordinator()
  const { volunteers: _, ...job } = smallJob()
  assert.match((await submit(url, { ...job, minVolunteers: 3 })).detail ?? '', /minVolunteers.*`volunteers\.min`/)
  assert.match(
    (await submit(url, smallJob({ volunteers: { min: 3, max: 2 } }))).detail ?? '',
    /volunteers\.max: expected at least the minimum of 3, got 2/,
  )
})

async function tell(url: string, route: string, id: string): Promise<void> {
  const { status } = await fetch(`${url}${pathTo(route, { id })}`, { method: 'POST', headers: OWNER })
  assert.equal(status, 202)
}

async function moreSteps(url: string, id: string, steps: number): Promise<void> {
  while ((await runOf(url, id)).version.v < steps) await new Promise((resolve) => setTimeout(resolve, 50))
}

async function snapshot(url: string): Promise<Extract<WatchMessage, { type: 'snapshot' }>> {
  const { messages, stop } = watch(url)
  for await (const message of messages)
    if (message.type === 'snapshot') {
      stop()
      return message
    }
  throw new Error('the stream ended without a snapshot')
}

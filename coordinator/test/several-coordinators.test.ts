// Two coordinators in one process, over one store. A request, a page or a volunteer that comes to the one is sent to
// the other when its job is there.
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { CoordinatorApi } from '@starling-grid/client/coordinator-api'
import { type CoordinatorList, type JobSpec, pathTo, ROUTES, systemClock } from '@starling-grid/protocol'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { memoryState } from '../src/journal/memory.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { OWNER, smallJob, startCoordinator, submit, temporaryFolder, TOKEN, until, volunteer } from './fixture.ts'

type Started = Awaited<ReturnType<typeof startCoordinator>>

async function two(): Promise<readonly [Started, Started]> {
  const storage = { store: memoryState({ sharedBy: systemClock }), blobs: memoryBlobs() }
  const webRoot = await temporaryFolder()
  for (const file of ['index.html', 'dashboard.html', 'api.html']) await writeFile(join(webRoot, file), file)
  const first = await startCoordinator({ storage, webRoot })
  const second = await startCoordinator({ storage, webRoot })
  await sees(first, ({ length }) => length === 2)
  return [first, second]
}

async function listOf({ url }: Started): Promise<CoordinatorList['coordinators']> {
  const answer = await fetch(url + ROUTES.coordinators, { headers: OWNER })
  return ((await answer.json()) as CoordinatorList).coordinators
}

/** The coordinators as one of them knows them, once it knows so much. */
async function sees(
  coordinator: Started,
  wanted: (coordinators: CoordinatorList['coordinators']) => boolean,
): Promise<CoordinatorList['coordinators']> {
  for (let looks = 0; looks < 600; looks++) {
    const list = await listOf(coordinator)
    if (wanted(list)) return list
    await delay(50)
  }
  throw new Error(`gave up waiting; it knows ${JSON.stringify(await listOf(coordinator))}`)
}

const has = (coordinator: Started, job: string) => (list: CoordinatorList['coordinators']) =>
  list.some(({ url, jobs }) => url === coordinator.url && jobs.includes(job))

/** A job, and where it is once all know it: at the one, and not at the other. */
interface Placed {
  readonly job: string
  readonly at: Started
  readonly other: Started
}

async function placed([first, second]: readonly [Started, Started], change: Partial<JobSpec> = {}): Promise<Placed> {
  const { id } = await submit(first.url, smallJob({ volunteers: { min: 1 }, stop: { epochs: 500 }, ...change }))
  for (;;) {
    const lists = [await listOf(first), await listOf(second)]
    const isAt = (coordinator: Started): boolean => lists.every((list) => has(coordinator, id)(list))
    if (isAt(first)) return { job: id, at: first, other: second }
    if (isAt(second)) return { job: id, at: second, other: first }
    await delay(50)
  }
}

/** As production's volunteers: it asks again until it is welcome. */
async function comesBack(url: string, one: FakeVolunteer): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    const again = volunteer(url, {
      self: one.self,
      stepMs: 2,
      ...(one.terms === undefined ? {} : { job: one.terms.id }),
    })
    if (one.held !== undefined) again.held = one.held
    if ((await Promise.race([again.heard('welcome').then(() => 'welcome'), again.closed])) === 'welcome') return
    await delay(100)
  }
  assert.fail('it was never welcome')
}

test('a request for a job of another coordinator is sent there, for those who may know of the job', async () => {
  const both = await two()
  const secret = await placed(both)
  const shown = await placed(both, { public: true })
  const ask = ({ job, other }: Placed, headers: Record<string, string>) =>
    fetch(other.url + pathTo(ROUTES.job, { id: job }), { headers, redirect: 'manual' })
  const sent = await ask(secret, OWNER)
  assert.deepEqual(
    [sent.status, sent.headers.get('location')],
    [307, secret.at.url + pathTo(ROUTES.job, { id: secret.job })],
  )
  while ((await ask(shown, {})).status !== 307) await delay(50) // once its coordinator says that it is public
  const [privately, nowhere] = [await ask(secret, {}), await ask({ ...secret, job: 'nothing-000000' }, {})]
  assert.deepEqual([privately.status, await privately.json()], [401, await nowhere.json()])
  const api = new CoordinatorApi({ url: secret.other.url, token: TOKEN })
  assert.equal((await api.run(secret.job)).job.id, secret.job)
  assert.equal(await api.setPaused(secret.job, true), true)
})

test('every coordinator tells which has which job: the list, /readyz, /metrics and the run itself', async () => {
  const { job, at, other } = await placed(await two())
  const api = new CoordinatorApi({ url: other.url, token: TOKEN })
  const { jobs, unreached } = await api.jobs()
  assert.deepEqual(
    [jobs.map((run) => [run.job.id, run.coordinators]), unreached],
    [[[job, { owner: at.url, others: [other.url] }]], []],
  )
  const ready = (await (await fetch(other.url + ROUTES.readyz)).json()) as { owners: Record<string, string> }
  const [[name, owner] = []] = Object.entries(ready.owners)
  assert.match(name ?? '', /^private-[0-9a-f]{8}$/)
  assert.equal(owner, at.url)
  const metrics = async (): Promise<string> => (await fetch(other.url + ROUTES.metrics, { headers: OWNER })).text()
  const row = `starling_job_owner{job_id="${job}",coordinator="${at.url}"} 1`
  while (!(await metrics()).includes(row)) await delay(50)
  assert.match(await metrics(), /^starling_coordinators 2$/m)
})

test('a page opens where its job is, and a page of a coordinator without jobs where one is', async () => {
  const both = await two()
  const open = async ({ url }: Started, path: string) => {
    const { status, headers } = await fetch(url + path, { redirect: 'manual' })
    return [status, headers.get('location')]
  }
  assert.deepEqual(await open(both[0], '/'), [200, null])
  const { job, at, other } = await placed(both)
  assert.deepEqual(await open(other, `/?job=${job}`), [302, `${at.url}/?job=${job}`])
  assert.deepEqual(await open(other, `/dashboard?job=${job}`), [302, `${at.url}/dashboard?job=${job}`])
  while ((await open(other, '/'))[0] !== 302) await delay(50)
  assert.deepEqual(await open(other, '/'), [302, `${at.url}/`])
  assert.deepEqual(await open(at, '/'), [200, null])
  assert.deepEqual(await open(other, '/?job=nothing-000000'), [200, null])
})

test('new jobs go where there is room, and a volunteer that comes to the one is sent to the other', async () => {
  const [first, second] = await two()
  const ids: string[] = []
  for (let i = 0; i < 4; i++) {
    const { id } = await submit(first.url, smallJob({ volunteers: { min: 1, max: 1 }, stop: { epochs: 500 } }))
    ids.push(id)
    await sees(first, (list) => list.some(({ jobs }) => jobs.includes(id)))
  }
  const list = await sees(first, (all) => all.every(({ jobs }) => jobs.length === 2))
  assert.deepEqual(list.flatMap(({ jobs }) => jobs).sort(), ids.sort(), 'each is at one of them')
  await sees(second, (all) => all.every(({ jobs }) => jobs.length === 2))
  // Four that come to the first, one for each job: two of them are sent on.
  const four = Array.from({ length: 4 }, () => volunteer(first.url))
  const sentOn = (one: FakeVolunteer) => one.messages.flatMap((message) => (message.type === 'moved' ? [message] : []))
  while (four.flatMap(sentOn).length < 2) await delay(50)
  const moved = four.flatMap(sentOn)
  const there = list.find(({ url }) => url === second.url)?.jobs ?? []
  assert.deepEqual(moved.map(({ to }) => to).sort(), [...there].sort())
  assert.ok(moved.every(({ url }) => url === second.url))
  for (const { url, to } of moved) volunteer(url, to === null ? {} : { job: to })
  await sees(first, (all) => all.every(({ volunteers }) => volunteers === 2))
})

test('a volunteer that names a job of the other coordinator is sent there, and told of all coordinators', async () => {
  const { job, at, other } = await placed(await two())
  const one = volunteer(other.url, { job })
  assert.deepEqual(await one.heard('coordinators'), { type: 'coordinators', urls: [at.url] })
  assert.deepEqual(await one.heard('moved'), { type: 'moved', url: at.url, to: job })
  await one.closed
})

test('a coordinator that ends gives its jobs to the other, with all steps, and sends volunteers there', async () => {
  const { job, at, other } = await placed(await two())
  const one = volunteer(at.url, { stepMs: 20 })
  const { version } = await until(at.url, 'steps', (run) => run.version.v >= 5)
  await at.drain(5000)
  await at.stop()
  assert.deepEqual(await one.heard('moved'), { type: 'moved', url: other.url, to: job })
  await comesBack(other.url, one)
  const run = await until(other.url, 'more steps', ({ version: { v } }) => v > version.v + 3)
  assert.equal(run.job.id, job)
  await sees(other, (list) => list.length === 1 && has(other, job)(list))
})

test('a job that is deleted at its coordinator is gone at all of them', async () => {
  const { job, at, other } = await placed(await two())
  await new CoordinatorApi({ url: other.url, token: TOKEN }).delete(job)
  await sees(other, (list) => list.every(({ jobs }) => jobs.length === 0))
  await sees(at, (list) => list.every(({ jobs }) => jobs.length === 0))
})

test('tokens and invites that one coordinator makes or revokes hold at the other', async () => {
  const [first, second] = await two()
  const api = new CoordinatorApi({ url: first.url, token: TOKEN })
  const {
    token,
    view: { id },
  } = await api.createToken({ scopes: ['jobs:write'] })
  const mayAsk = async () =>
    (await fetch(second.url + ROUTES.tokens, { headers: { authorization: `Bearer ${token}` } })).status
  for (let looks = 0; (await mayAsk()) !== 403; looks++) {
    assert.ok(looks < 100, 'the token is known at the other')
    await delay(100)
  }
  await api.revokeToken(id)
  for (let looks = 0; (await mayAsk()) !== 401; looks++) {
    assert.ok(looks < 100, 'the token is revoked at the other')
    await delay(100)
  }
})

test('a coordinator with other blobs than the others does not start', async () => {
  const store = memoryState({ sharedBy: systemClock })
  await startCoordinator({ storage: { store, blobs: memoryBlobs() } })
  await assert.rejects(startCoordinator({ storage: { store, blobs: memoryBlobs() } }), {
    code: 'usage',
    message: /expected the blobs of the other coordinators/,
  })
})

test('a job that a beat finds in the store before its coordinator has opened it is opened once', async () => {
  const store = memoryState({ sharedBy: systemClock })
  const { owners: book } = store
  assert.ok(book)
  let beats = 0
  let takeOvers = 0
  const { url } = await startCoordinator({
    storage: {
      blobs: memoryBlobs(),
      store: {
        ...store,
        owners: {
          ...book,
          beat: async (id, card) => {
            beats++
            return book.beat(id, card)
          },
        },
        async takeOver(job, at, read) {
          const first = ++takeOvers === 1
          // a store that is slow for one beat and the look that follows it
          for (const after = beats + 3; first && takeOvers === 1 && beats < after;) await delay(50)
          return store.takeOver(job, at, read)
        },
      },
    },
  })
  const { id } = await submit(url, smallJob({ volunteers: { min: 1 }, stop: { epochs: 1 } }))
  volunteer(url)
  await until(url, 'its end', ({ job, phase }) => job.id === id && phase === 'finished')
  assert.equal(takeOvers, 1)
})

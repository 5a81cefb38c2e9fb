// A coordinator that takes invited volunteers only, with real sockets: who is let in, how uses count, what ends.
import assert from 'node:assert/strict'
import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { test } from 'node:test'
import { type InviteView, pathTo, ROUTES } from '@starling-grid/protocol'
import { processClock } from '../src/clock.ts'
import { type FakeVolunteer, newFakeSelf } from './fake-volunteer.ts'
import { OWNER, smallJob, startCoordinator, submit, temporaryFolder, volunteer } from './fixture.ts'

interface Invited {
  readonly code: string
  readonly link: string
  readonly view: InviteView
}

async function ask<T>(url: string, path: string, asked: { method?: string; body?: object; headers?: object } = {}) {
  const { method = 'POST', body, headers = OWNER } = asked
  const response = await fetch(url + path, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  return { status: response.status, ...((await response.json()) as T) }
}

const invite = (url: string, body: object = {}) => ask<Invited>(url, ROUTES.invites, { body })
const revoke = (url: string, id: string) => ask(url, pathTo(ROUTES.invite, { id }), { method: 'DELETE' })
const listed = async (url: string) =>
  (await ask<{ invites: InviteView[] }>(url, ROUTES.invites, { method: 'GET' })).invites

const newKey = (): KeyObject => generateKeyPairSync('ed25519').privateKey

/** Says hello with this code, as the holder of this key. */
function comes(url: string, code: string | undefined, key = newKey()): FakeVolunteer {
  const fake = volunteer(url, { obedient: false, self: newFakeSelf(key) })
  fake.hello({ again: false, ...(code === undefined ? {} : { invite: code }) })
  return fake
}

/** 'welcome', or the code of the refusal that ended it. */
async function fateOf(fake: FakeVolunteer): Promise<string> {
  const welcome = fake.heard('welcome').then(
    () => 'welcome',
    () => 'closed',
  )
  const refused = fake.heard('refused').then(
    ({ code, fatal }) => (fatal ? code : `${code}, not fatal`),
    () => 'closed',
  )
  return Promise.race([welcome, refused])
}

const closed = { participation: 'invited' as const }

test('a volunteer without a valid invite is refused by name, and told what to ask for', async () => {
  const { url } = await startCoordinator(closed)
  const { code, link } = await invite(url)
  assert.equal(link, `${url}/#invite=${code}`, 'in the fragment, which no server sees')
  for (const wrong of [undefined, 'x', `${code.slice(0, -1)}!`, code.replace(/^i/, 't'), code.split('.')[1] ?? ''])
    assert.equal(await fateOf(comes(url, wrong)), 'invite-required', wrong)
  const refused = comes(url, undefined)
  assert.match((await refused.heard('refused')).message, /ask its owner for an invite link/)
  assert.equal(await fateOf(comes(url, code)), 'welcome')
})

test('an open coordinator lets in with an invite, without one, and with a wrong one', async () => {
  const { url } = await startCoordinator()
  for (const code of [undefined, 'x']) assert.equal(await fateOf(comes(url, code)), 'welcome')
})

test('uses count by the key of a volunteer: who comes back, also after a restart, costs no second one', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ ...closed, dataDir })
  const { code, view } = await invite(first.url, { uses: 2 })
  const [anna, ben, eve] = [newKey(), newKey(), newKey()]
  for (const key of [anna, anna, ben, anna]) assert.equal(await fateOf(comes(first.url, code, key)), 'welcome')
  assert.equal(await fateOf(comes(first.url, code, eve)), 'invite-required', 'it is used up')
  assert.deepEqual(
    (await listed(first.url)).map(({ id, used, uses }) => [id, used, uses]),
    [[view.id, 2, 2]],
  )
  await first.stop()
  const { url } = await startCoordinator({ ...closed, dataDir })
  assert.equal(await fateOf(comes(url, code, ben)), 'welcome')
  assert.equal(await fateOf(comes(url, code, eve)), 'invite-required')
})

test('of many that come at once by an invite of three uses three are let in', async () => {
  const { url } = await startCoordinator(closed)
  const { code } = await invite(url, { uses: 3 })
  const fates = await Promise.all(Array.from({ length: 9 }, () => fateOf(comes(url, code))))
  assert.deepEqual(fates.sort(), [...Array<string>(6).fill('invite-required'), ...Array<string>(3).fill('welcome')])
})

test('a revoked invite lets no one in, and the volunteers that came by it leave', async () => {
  const { url } = await startCoordinator(closed)
  const [one, other] = [await invite(url), await invite(url)]
  const [gone, stays] = [comes(url, one.code), comes(url, other.code)]
  assert.deepEqual([await fateOf(gone), await fateOf(stays)], ['welcome', 'welcome'])
  assert.equal((await revoke(url, one.view.id)).status, 200)
  assert.equal((await gone.heard('refused')).code, 'invite-required')
  await gone.closed
  assert.equal(await fateOf(comes(url, one.code, gone.self.key)), 'invite-required')
  assert.equal((await revoke(url, one.view.id)).status, 404)
  assert.equal(stays.socket.readyState, stays.socket.OPEN)
})

test('an invite that expired lets no newcomer in, and one who came before may come back', async () => {
  let ahead = 0
  const clock = { ...processClock, wallTime: () => processClock.wallTime() + ahead }
  const { url } = await startCoordinator({ ...closed, clock })
  const { code } = await invite(url, { expiresAt: clock.wallTime() + 3_600_000 })
  const key = newKey()
  assert.equal(await fateOf(comes(url, code, key)), 'welcome')
  ahead = 3_600_000
  assert.equal(await fateOf(comes(url, code)), 'invite-required')
  assert.equal(await fateOf(comes(url, code, key)), 'welcome')
  assert.equal((await invite(url, { expiresAt: 1 })).status, 422)
})

test('a volunteer that was invited to one job is given no other', async () => {
  const { url } = await startCoordinator(closed)
  const { id } = await submit(url, smallJob())
  const { code } = await invite(url, { job: id })
  assert.equal((await ask(url, pathTo(ROUTES.pause, { id }))).status, 202)
  const { id: later } = await submit(url, smallJob({ name: 'Later' }))
  const [bound, free] = [comes(url, code), comes(url, (await invite(url)).code)]
  await free.heard('welcome', ({ job }) => job?.id === later)
  assert.equal((await bound.heard('welcome')).job, null, 'its own job rests')
  const { status } = await ask(url, pathTo(ROUTES.job, { id: later }), {
    method: 'GET',
    headers: { authorization: `Bearer ${bound.session}` },
  })
  assert.equal(status, 404)
  assert.equal((await invite(url, { job: 'nothing-000000' })).status, 404)
})

test('threat 5: an address that guesses codes waits, and its right code is not even compared', async () => {
  let ahead = 0
  const clock = { ...processClock, awake: () => ahead }
  const { url } = await startCoordinator({ ...closed, clock })
  const { code } = await invite(url)
  for (let i = 0; i < 10; i++) assert.equal(await fateOf(comes(url, `wrong-${i}`)), 'invite-required')
  assert.equal(await fateOf(comes(url, code)), 'rate-exceeded')
  ahead += 60_000
  assert.equal(await fateOf(comes(url, code)), 'welcome')
})

test('the holder of a token invites to jobs of its own, and sees and revokes no other invites', async () => {
  const { url } = await startCoordinator(closed)
  const made = await ask<{ token: string }>(url, ROUTES.tokens, { body: { scopes: ['jobs:write'] } })
  const headers = { authorization: `Bearer ${made.token}` }
  const { id } = await submit(url, smallJob(), made.token)
  const { id: foreign } = await submit(url, smallJob())
  const to = (body: object) => ask<Invited>(url, ROUTES.invites, { body, headers })
  const [own, others, all] = [await to({ job: id }), await to({ job: foreign }), await to({})]
  assert.deepEqual([own.status, others.status, all.status], [201, 404, 403])
  const hidden = await invite(url)
  const seen = await ask<{ invites: InviteView[] }>(url, ROUTES.invites, { method: 'GET', headers })
  assert.deepEqual(
    seen.invites.map((one) => one.id),
    [own.view.id],
  )
  const tried = await ask(url, pathTo(ROUTES.invite, { id: hidden.view.id }), { method: 'DELETE', headers })
  assert.equal(tried.status, 404)
})

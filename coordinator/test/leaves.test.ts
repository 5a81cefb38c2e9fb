// A volunteer that says it leaves has left as expected, however its connection ends: a tab that closes takes its Worker
// and its socket with it, often before its run lets it go.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { ROUTES } from '@starling-grid/protocol'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { QUICK, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const NO_CONTENT = 204
const UNAUTHORIZED = 401
/** A step that does not end before the connection breaks. */
const SLOW_STEP_MS = 2000

/** Two members in a ring, the second in the midst of a slow step. */
async function ringOfTwo(): Promise<{ readonly url: string; readonly tab: FakeVolunteer }> {
  const { url } = await startCoordinator({ timing: QUICK })
  await submit(url, smallJob({ stop: { epochs: 1000 } }))
  const tab = volunteer(url, { stepMs: SLOW_STEP_MS })
  volunteer(url, { stepMs: SLOW_STEP_MS })
  await until(
    url,
    'a ring of two',
    ({ phase, members }) => phase === 'ring' && members.filter(({ rank }) => rank !== null).length === 2,
  )
  return { url, tab }
}

const firstDeparture = async (url: string): Promise<{ readonly reason: string; readonly expected: boolean }> => {
  const { departed } = await until(url, 'a departure', ({ departed: gone }) => gone.length > 0)
  const [{ reason, expected } = { reason: 'no member left', expected: false }] = departed
  return { reason, expected }
}

test('a connection that breaks after its volunteer said that it leaves is no broken connection', async () => {
  const { url, tab } = await ringOfTwo()
  tab.send({ type: 'leave' })
  const answered = once(tab.socket, 'pong')
  tab.socket.ping()
  await answered // so the coordinator has read what came before
  tab.socket.terminate()
  assert.deepEqual(await firstDeparture(url), { reason: 'closed its connection', expected: true })
})

test("a closing page leaves by a request with its session's token; one without a token is refused", async () => {
  const { url, tab } = await ringOfTwo()
  const refused = await fetch(`${url}${ROUTES.leave}`, { method: 'POST' })
  assert.equal(refused.status, UNAUTHORIZED)
  const answered = await fetch(`${url}${ROUTES.leave}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${tab.session}` },
  })
  assert.equal(answered.status, NO_CONTENT)
  tab.socket.terminate()
  assert.deepEqual(await firstDeparture(url), { reason: 'closed its connection', expected: true })
})

test('a request that comes behind the end of the connection is a goodbye all the same', async () => {
  const { url, tab } = await ringOfTwo()
  tab.socket.terminate()
  assert.equal((await firstDeparture(url)).expected, false)
  const answered = await fetch(`${url}${ROUTES.leave}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${tab.session}` },
  })
  assert.equal(answered.status, NO_CONTENT)
  const { departed } = await until(url, 'the goodbye', ({ departed: [gone] }) => gone?.expected === true)
  assert.deepEqual([departed.length, departed[0]?.reason], [1, 'closed its connection'])
})

test('a connection that breaks without a word is told as broken', async () => {
  const { url, tab } = await ringOfTwo()
  tab.socket.terminate()
  assert.deepEqual(await firstDeparture(url), { reason: 'the connection broke', expected: false })
})

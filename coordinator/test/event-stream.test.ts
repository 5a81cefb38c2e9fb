// Events of a job as server-sent events, from a real server.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pathTo, ROUTES, type RunEvent } from '@starling-grid/protocol'
import { OWNER, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

interface Told {
  readonly id: string
  readonly event: RunEvent
}

async function open(url: string, id: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url + pathTo(ROUTES.events, { id }), { headers: { ...OWNER, accept: 'text/event-stream', ...headers } })
}

/** What comes until the stream ends, or until `enough`. */
async function told(response: Response, enough: (events: readonly Told[]) => boolean = () => false): Promise<Told[]> {
  let text = ''
  let events: Told[] = []
  for await (const piece of response.body ?? []) {
    text += Buffer.from(piece as Uint8Array).toString()
    events = [...text.matchAll(/^id: (.*)\nevent: (.*)\ndata: (.*)\n\n/gm)].map(([, id = '', kind, data = '']) => {
      const event = JSON.parse(data) as RunEvent
      assert.equal(event.kind, kind)
      return { id, event }
    })
    if (enough(events)) break
  }
  return events
}

async function listed(url: string, id: string): Promise<readonly RunEvent[]> {
  const response = await fetch(url + pathTo(ROUTES.events, { id }), { headers: OWNER })
  return ((await response.json()) as { events: RunEvent[] }).events
}

test('a stream tells every event of a job once, up to its end, and Last-Event-ID resumes it', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  const response = await open(url, id)
  assert.equal(response.headers.get('content-type'), 'text/event-stream')
  const whole = told(response)
  volunteer(url)
  await until(url, 'its end', ({ phase }) => phase === 'finished')
  const events = await whole
  assert.ok(events.length > 2)
  assert.equal(new Set(events.map((one) => one.id)).size, events.length)
  // Members that leave after the end are told, and not kept.
  const kept = await listed(url, id)
  assert.deepEqual(
    events.map(({ event }) => event).filter(({ text }) => kept.some((one) => one.text === text)),
    kept,
  )
  const middle = events[Math.floor(events.length / 2)] ?? assert.fail()
  const rest = await told(await open(url, id, { 'last-event-id': middle.id }))
  assert.deepEqual(
    rest.map(({ event }) => event),
    kept.slice(kept.findIndex(({ text }) => text === middle.event.text) + 1),
  )
  assert.equal((await open(url, id, { 'last-event-id': events.at(-1)?.id ?? '' })).status, 204, 'nothing more comes')
})

test('a stream ends when the token of its reader is revoked, and a stranger gets none', async () => {
  const { url } = await startCoordinator()
  const asked = { method: 'POST', headers: { ...OWNER, 'content-type': 'application/json' } }
  const made = await fetch(url + ROUTES.tokens, { ...asked, body: JSON.stringify({ scopes: ['jobs:write'] }) })
  const { token, view } = (await made.json()) as { token: string; view: { id: string } }
  const { id } = await submit(url, smallJob(), token)
  const ended = told(await open(url, id, { authorization: `Bearer ${token}` }))
  await fetch(url + pathTo(ROUTES.token, { id: view.id }), { method: 'DELETE', headers: OWNER })
  await ended
  assert.equal((await open(url, id, { authorization: `Bearer ${token}` })).status, 401)
})

test('threat 21: one address gets 64 streams, and a place again when one closes', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob())
  const streams = await Promise.all(Array.from({ length: 64 }, () => open(url, id)))
  assert.deepEqual(new Set(streams.map(({ status }) => status)), new Set([200]))
  assert.equal((await open(url, id)).status, 429)
  await streams[0]?.body?.cancel()
  let status = 429
  while (status === 429) {
    const again = await open(url, id)
    status = again.status
    await again.body?.cancel()
  }
  assert.equal(status, 200)
  await Promise.all(streams.slice(1).map(({ body }) => body?.cancel()))
})

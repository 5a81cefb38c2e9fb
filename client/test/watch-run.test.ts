// A run watched over a connection that breaks: server-sent events, cut anywhere, each of them once.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { CoordinatorApi } from '../src/coordinator-api.ts'
import { type SentEvent, sentEvents } from '../src/sent-events.ts'
import { type JobUpdate, watchRun } from '../src/watch-run.ts'

const STREAM =
  'retry: 2000\n\nid: 5-0\nevent: run\ndata: {"text":"größer"}\n\n: still here\n\nevent: step\ndata: {}\n\nid: 6'

async function* cut(text: string, length: number): AsyncGenerator<Uint8Array> {
  const bytes = new TextEncoder().encode(text)
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length)
}

test('server-sent events are the same wherever their bytes are cut, and one without an end is refused', async () => {
  for (let length = 1; length <= STREAM.length; length++) {
    const events: SentEvent[] = []
    for await (const event of sentEvents(cut(STREAM, length))) events.push(event)
    assert.deepEqual(events, [
      { id: '5-0', type: 'run', data: '{"text":"größer"}' },
      { id: undefined, type: 'step', data: '{}' },
    ])
  }
  await assert.rejects(sentEvents(cut('x'.repeat(3_000_000), 65_536)).next(), { code: 'message-too-large' })
})

test('a watch goes on behind the last event that it had, and ends with what is refused for good', async () => {
  const event = (at: number): string =>
    `id: ${at}-0\nevent: run\ndata: ${JSON.stringify({ at, kind: 'run', text: `event ${at}` })}\n\n`
  const step = { v: 3, loss: 0.5, accuracy: 0.9, samples: 64, mode: 'ring', at: 2 }
  const asked: (string | undefined)[] = []
  const server = createServer(({ headers }, response) => {
    asked.push(headers['last-event-id'] as string | undefined)
    const stream = (text: string, then: () => void): void =>
      void response.writeHead(200, { 'content-type': 'text/event-stream' }).write(text, then)
    if (asked.length === 1) {
      const whole = `${event(1)}event: step\ndata: ${JSON.stringify(step)}\n\n`
      stream(`${whole}id: 2-0\nevent: run\nda`, () => response.destroy()) // in the midst of an event
    } else if (asked.length === 2) response.writeHead(503).end()
    else if (asked.length === 3) {
      stream(event(2), () => response.end())
    } else
      response
        .writeHead(401, { 'content-type': 'application/problem+json' })
        .end(JSON.stringify({ type: 'x', title: 'x', status: 401, detail: 'over', code: 'token-required' }))
  }).listen(0, '127.0.0.1')
  after(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const api = new CoordinatorApi({ url: `http://127.0.0.1:${port}`, token: 'x' })
  const updates: JobUpdate[] = []
  const away: string[] = []
  const watching = async (): Promise<void> => {
    for await (const update of watchRun(api, 'digits-1', { onAway: (why) => void away.push(why) })) updates.push(update)
  }
  await assert.rejects(watching(), { code: 'token-required' })
  assert.deepEqual(
    updates.map((update) => (update.type === 'event' ? update.event.text : update.type)),
    ['event 1', 'step', 'event 2'],
  )
  assert.deepEqual(asked, [undefined, '1-0', '1-0', '2-0'])
  assert.equal(away.length, 2, 'the stream that broke, and the 503')
})

test('a watch ends at once when its signal says so', async () => {
  const server = createServer((_, response) => void response.writeHead(200).write(': hello\n\n')).listen(0, '127.0.0.1')
  after(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const api = new CoordinatorApi({ url: `http://127.0.0.1:${port}` })
  const left = new AbortController()
  const onAway = (why: string): void => assert.fail(why)
  const next = watchRun(api, 'digits-1', { signal: left.signal, onAway }).next()
  await once(server, 'request')
  left.abort(new Error('enough'))
  await assert.rejects(next, /enough/)
  server.closeAllConnections()
})

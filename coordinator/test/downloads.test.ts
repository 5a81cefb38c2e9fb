// A state as members download it: from a byte on when they have the rest, and a few at a time.
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { test } from 'node:test'
import { pathTo, ROUTES } from '@starling-grid/protocol'
import { smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

/**
 * A member, and the newest checkpoint of a run that is over. Its state of 19 MB does not fit into the buffers of
 * sockets.
 */
async function finished() {
  const { url } = await startCoordinator()
  const wide = {
    name: 'wide',
    input: [1, 28, 28],
    layers: [
      { type: 'flatten' },
      { type: 'linear', name: 'hidden', out: 3000 },
      { type: 'linear', name: 'fc', out: 10 },
    ],
  }
  const { id } = await submit(url, smallJob({ stop: { epochs: 1, steps: 1 }, volunteers: { min: 1 }, model: wide }))
  const member = volunteer(url)
  const run = await until(url, 'the end', ({ phase }) => phase === 'finished')
  assert.ok(run.checkpoint !== null)
  return { url, member, path: pathTo(ROUTES.version, { id, versionId: run.checkpoint.id }) }
}

test('a member that has the first bytes of a state gets the others', async () => {
  const { member, path } = await finished()
  const whole = await member.request(path)
  const bytes = new Uint8Array(await whole.arrayBuffer())
  assert.deepEqual([whole.status, whole.headers.get('accept-ranges')], [200, 'bytes'])
  const rest = await member.request(path, { headers: { range: 'bytes=1000-' } })
  assert.deepEqual(
    [rest.status, rest.headers.get('content-range')],
    [206, `bytes 1000-${bytes.byteLength - 1}/${bytes.byteLength}`],
  )
  assert.deepEqual(new Uint8Array(await rest.arrayBuffer()), bytes.subarray(1000))
  assert.equal((await member.request(path, { headers: { range: `bytes=${bytes.byteLength}-` } })).status, 416)
  assert.deepEqual(
    new Uint8Array(await (await member.request(path, { headers: { range: 'bytes=1-2' } })).arrayBuffer()),
    bytes.subarray(1, 3),
  )
  assert.equal(
    (await member.request(path, { headers: { 'if-none-match': whole.headers.get('etag') ?? '' } })).status,
    304,
  )
})

test('threat 25: a member downloads one state at a time; its second request waits for the first', async () => {
  const { url, member, path } = await finished()
  const slow = slowDownload(url + path, member.session)
  assert.equal(await slow.status, 200)
  const second = await member.request(path)
  assert.deepEqual([second.status, second.headers.get('retry-after')], [429, '1'])
  slow.end()
  let status = 429
  for (const stop = performance.now() + 10_000; status === 429 && performance.now() < stop;) {
    const response = await member.request(path)
    status = response.status
    await response.arrayBuffer()
  }
  assert.equal(status, 200)
})

/** Asks and does not read the answer. */
function slowDownload(url: string, session: string): { readonly status: Promise<number>; readonly end: () => void } {
  const asked = request(url, { headers: { authorization: `Bearer ${session}` }, agent: false })
  asked.on('error', () => undefined)
  const status = new Promise<number>((resolve) =>
    asked.on('response', (response) => {
      response.pause()
      resolve(response.statusCode ?? 0)
    }),
  )
  asked.end()
  return { status, end: () => asked.destroy() }
}

// State from member to member: whole, resumable, bounded, and only from those who may serve.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Frame, FRAME_PAYLOAD_BYTES, isGridError, memberId, versionId } from '@starling-grid/protocol'
import { serveFetch, StateFetch, type Wanted } from '@starling-grid/volunteer'

const source = memberId('source')
const asker = memberId('asker')
const wanted: Wanted = { kind: 'state', version: { v: 3, id: versionId('a'.repeat(64)) }, generation: 5, maxBytes: 1_000_000 }
const code = (expected: string) => (error: unknown) => isGridError(error) && error.code === expected

/** A fetch whose requests go straight to `answer`; frames come back through accept. */
function fetchFrom(answer: (request: Frame, back: (frame: Frame) => void) => void): StateFetch {
  const fetch: StateFetch = new StateFetch((_to, frame) => queueMicrotask(() => answer(frame, (reply) => fetch.accept(source, reply))))
  return fetch
}

test('a state of many chunks arrives whole', async () => {
  const state = Uint8Array.from({ length: 3 * FRAME_PAYLOAD_BYTES + 17 }, (_, i) => i % 251)
  const fetch = fetchFrom((request, back) => serveFetch(asker, request, () => state, (_to, frame) => back(frame)))
  assert.deepEqual(await fetch.fetch(wanted, source), state)
})

test('a member that may not serve refuses, and the asker goes on to the next', async () => {
  const fetch = fetchFrom((request, back) => serveFetch(asker, request, () => undefined, (_to, frame) => back(frame)))
  await assert.rejects(fetch.fetch(wanted, source), code('message-unexpected'))
})

test('an answer that is larger than the model can need is refused before it is allocated', async () => {
  const fetch = fetchFrom((request, back) => back({ ...request, type: 'chunk', bucket: 0xffffffff, offset: 0, payload: new Uint8Array(10) }))
  await assert.rejects(fetch.fetch(wanted, source), code('message-malformed'))
})

test('a chunk out of place is refused', async () => {
  const fetch = fetchFrom((request, back) => back({ ...request, type: 'chunk', bucket: 100, offset: 50, payload: new Uint8Array(10) }))
  await assert.rejects(fetch.fetch(wanted, source), code('message-malformed'))
})

test('answers of an older generation and of other members change nothing', async () => {
  const state = Uint8Array.of(9, 8, 7)
  const fetch: StateFetch = new StateFetch((_to, request) =>
    queueMicrotask(() => {
      const chunk: Frame = { ...request, type: 'chunk', bucket: 3, offset: 0, payload: Uint8Array.of(1, 1, 1) }
      fetch.accept(source, { ...chunk, generation: 4 })
      fetch.accept(asker, chunk)
      fetch.accept(source, { ...chunk, payload: state })
    }),
  )
  assert.deepEqual(await fetch.fetch(wanted, source), state)
})

test('a source that goes away ends the fetch at once', async () => {
  const fetch = new StateFetch(() => undefined)
  const failed = assert.rejects(fetch.fetch(wanted, source), code('link-lost'))
  fetch.lost(source)
  await failed
})

test('a hostile request is refused, not served', () => {
  const request: Frame = { type: 'fetch', generation: 5, step: 0, bucket: 0, hop: 0, offset: 0, payload: new TextEncoder().encode('{"kind":"everything"}') }
  assert.throws(() => serveFetch(asker, request, () => new Uint8Array(3), () => undefined), code('message-malformed'))
})

// The lines of `bench links`: what they delay, limit and lose, and where they lead connections. What links carry
// over them is measured, not tested: a socket of a busy machine loses packets.
import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { newMemberId } from '@starling-grid/protocol'
import { HEADER_BYTES, type HomeLine, LineDirection } from '../src/lines/line.ts'
import { reroute } from '../src/lines/reroute.ts'
import { ShapedPath, type Side } from '../src/lines/shaped-path.ts'

const LINE: HomeLine = { megabits: 8, latencyMs: 50, loss: 0 }

test('a line takes its time for each packet, and the way after that', () => {
  const direction = new LineDirection(LINE, () => 1)
  assert.equal(direction.arrival(0, 1000 - HEADER_BYTES), 51)
  assert.equal(direction.arrival(0, 1000 - HEADER_BYTES), 52)
  assert.equal(direction.arrival(10, 1000 - HEADER_BYTES), 61)
})

test('what the queue has no room for is lost, and what comes later passes', () => {
  const direction = new LineDirection(LINE, () => 1)
  const arrivals = Array.from({ length: 200 }, () => direction.arrival(0, 1000 - HEADER_BYTES))
  assert.equal(arrivals.filter((at) => at !== undefined).length, 101, 'a round trip of 100 ms and the one that leaves')
  assert.deepEqual(direction.lost, { full: 99, way: 0 })
  assert.notEqual(direction.arrival(50, 100), undefined)
})

test('the way loses as many packets as the line says', () => {
  let drawn = 0
  const direction = new LineDirection({ ...LINE, loss: 0.25 }, () => (drawn++ % 4) / 4)
  for (let now = 0; now < 400; now += 4) direction.arrival(now, 100)
  assert.deepEqual([direction.lost.way, direction.passed], [25, 75])
})

const SDP = ['v=0', 'm=application 9 DTLS/SCTP 5000', 'a=candidate:1 1 UDP 1 192.168.0.7 5000 typ host', ''].join(
  '\r\n',
)
const faceOf = (connection: number, side: Side) => ({
  address: '10.0.0.1',
  port: 1000 * connection + (side === 'a' ? 1 : 2),
})
const src = newMemberId()

test('members appear to each other at their faces alone, each connection at faces of its own', () => {
  const change = reroute(faceOf)
  const sdpOf = (type: string, connectionId: string): string => {
    const passed = change({ type, src, payload: { connectionId, sdp: { type, sdp: SDP } } })
    assert.ok(passed)
    return (passed.payload as { sdp: { sdp: string } }).sdp.sdp
  }
  const candidates = (sdp: string): string[] => sdp.split('\r\n').filter((line) => line.startsWith('a=candidate'))
  const at = (port: number): string[] => [`a=candidate:1 1 UDP 2122317823 10.0.0.1 ${port} typ host`]
  assert.deepEqual(candidates(sdpOf('OFFER', 'one')), at(1))
  assert.deepEqual(candidates(sdpOf('ANSWER', 'one')), at(2))
  assert.deepEqual(candidates(sdpOf('OFFER', 'other')), at(1001))
  assert.equal(change({ type: 'CANDIDATE', src, payload: {} }), undefined)
  assert.deepEqual(change({ type: 'LEAVE', src }), { type: 'LEAVE', src })
})

test('packets pass from one end to the other, and back, once both were seen', { timeout: 60_000 }, async (t) => {
  const path = await ShapedPath.open({ ...LINE, latencyMs: 1 }, 1)
  const [a, b] = [createSocket('udp4'), createSocket('udp4')]
  t.after(() => {
    path.close()
    for (const socket of [a, b]) socket.close()
  })
  const send = (from: typeof a, to: Side, text: string): void => {
    const { port, address } = path.face(0, to)
    from.send(text, port, address)
  }
  send(a, 'b', 'is lost: b was not seen')
  await until(() => path.counts['packets passed'] === 1 && path.bytesUnderWay === 0, t.signal)
  const first = once(a, 'message')
  send(b, 'a', 'hello a')
  assert.equal(String((await first)[0]), 'hello a')
  const second = once(b, 'message')
  send(a, 'b', 'hello b')
  assert.equal(String((await second)[0]), 'hello b')
})

/** Polls: a path has no event. The test's own time is the limit. */
async function until(condition: () => boolean, signal: AbortSignal): Promise<void> {
  while (!condition()) await delay(5, undefined, { signal })
}

// When the watch stream comes back: soon at first, then less and less often, and soon again after it had worked.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { type WatchLink, WatchSocket } from '../src/live/watch-socket.ts'
import { snapshotAt } from './fixture-run.ts'

/** The newest socket that was dialled. */
class FakeSocket {
  static dialled: FakeSocket[] = []
  onmessage: ((event: { readonly data: unknown }) => void) | null = null
  onclose: ((event: { readonly reason: string }) => void) | null = null

  constructor() {
    FakeSocket.dialled.push(this)
  }

  close(): void {}
}

/** ms that each of so many breaks is waited after; the clock is ours. */
function waits(socket: { readonly links: WatchLink[] }, breaks: number): number[] {
  return Array.from({ length: breaks }, () => {
    const dialled = FakeSocket.dialled.length
    FakeSocket.dialled.at(-1)?.onclose?.({ reason: '' })
    const link = socket.links.at(-1)
    assert.ok(link?.type === 'away')
    const waited = link.retryAt - Date.now()
    mock.timers.tick(waited - 1)
    assert.equal(FakeSocket.dialled.length, dialled, 'not earlier')
    mock.timers.tick(1)
    assert.equal(FakeSocket.dialled.length, dialled + 1, 'but then')
    return waited
  })
}

test('a stream that breaks again and again is dialled less and less often, and soon again after it worked', (t) => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] })
  mock.method(Math, 'random', () => 0.5) // the middle of the jitter
  Object.assign(globalThis, { WebSocket: FakeSocket, location: { protocol: 'http:', host: 'grid' } })
  t.after(() => mock.reset())
  const links: WatchLink[] = []
  const socket = new WatchSocket({
    token: undefined,
    job: undefined,
    onTokenRefused: () => undefined,
    onMessage: () => undefined,
    onLink: (link) => links.push(link),
  })
  socket.start()
  assert.deepEqual(waits({ links }, 6), [500, 1000, 2000, 4000, 8000, 8000])
  FakeSocket.dialled.at(-1)?.onmessage?.({ data: JSON.stringify(snapshotAt(3)) })
  assert.deepEqual(waits({ links }, 2), [500, 1000])
  socket.stop()
})

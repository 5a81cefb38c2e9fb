// Bounds that no test reaches with real connections: how many volunteers there may be, and how tokens are compared.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { EventEmitter } from 'node:events'
import { syncBuiltinESMExports } from 'node:module'
import { mock, test } from 'node:test'
import { CLOSE_BROKEN, CLOSE_POLICY, MAX_VOLUNTEERS } from '@starling-grid/protocol'
import { processClock } from '../src/clock.ts'
import { Sessions } from '../src/net/sessions.ts'
import { startCoordinator, submit, smallJob } from './fixture.ts'

/** What a session needs of a WebSocket, without a network below it. */
class FakeSocket extends EventEmitter {
  static readonly OPEN = 1
  readonly OPEN = FakeSocket.OPEN
  readyState = FakeSocket.OPEN
  bufferedAmount = 0
  readonly sent: string[] = []
  closed: number | undefined

  send(text: string): void {
    this.sent.push(text)
  }

  ping(): void {}

  close(code: number): void {
    this.closed = code
    this.readyState = 3
  }

  terminate(): void {
    this.close(CLOSE_BROKEN)
  }
}

test('beyond the most volunteers that a coordinator takes one more is refused by name, and has no session', () => {
  const refusals: string[] = []
  const parts = {
    clock: processClock,
    onRefused: (code: string) => refusals.push(code),
    onGone: () => undefined,
    placeFor: () => undefined,
    lastRun: () => undefined,
    relayedLinks: () => 0,
  }
  const sessions = new Sessions(parts as unknown as ConstructorParameters<typeof Sessions>[0])
  let admitted = 0
  /** Each from an address of its own: places are shared by addresses, and one address has few. */
  const admit = (): FakeSocket => {
    const socket = new FakeSocket()
    const address = `10.0.${admitted >> 8}.${admitted & 255}`
    admitted++
    sessions.admit(socket as unknown as Parameters<Sessions['admit']>[0], { names: [], address })
    return socket
  }
  const last = Array.from({ length: MAX_VOLUNTEERS }, admit).at(-1)
  assert.deepEqual([last?.sent.length, last?.closed, refusals], [1, undefined, []])
  assert.match(last?.sent[0] ?? '', /"type":"challenge"/)
  const tooMany = admit()
  assert.deepEqual(refusals, ['grid-full'])
  assert.match(tooMany.sent[0] ?? '', /"type":"refused","code":"grid-full"/)
  assert.equal(tooMany.closed, CLOSE_POLICY)
  last?.emit('close', CLOSE_BROKEN)
  admit()
  assert.deepEqual(refusals, ['grid-full'], 'a place is free again')
})

test('threat 44: one address has few of the places, whatever is free, and others come in', () => {
  const refusals: string[] = []
  const parts = { clock: processClock, onRefused: (code: string) => refusals.push(code), onGone: () => undefined }
  const sessions = new Sessions(parts as unknown as ConstructorParameters<typeof Sessions>[0])
  const admit = (address: string): FakeSocket => {
    const socket = new FakeSocket()
    sessions.admit(socket as unknown as Parameters<Sessions['admit']>[0], { names: [], address })
    return socket
  }
  const crowd = Array.from({ length: 256 }, () => admit('192.0.2.1'))
  assert.deepEqual(refusals, [])
  assert.equal(admit('192.0.2.1').closed, CLOSE_POLICY)
  assert.deepEqual(refusals, ['grid-full'])
  assert.equal(admit('192.0.2.2').closed, undefined)
  crowd[0]?.emit('close', CLOSE_BROKEN)
  assert.equal(admit('192.0.2.1').closed, undefined, 'a place is free again')
})

test('tokens are compared as hashes of one length, in constant time, right or wrong', async (t) => {
  const compared: number[][] = []
  const { timingSafeEqual } = crypto
  mock.method(crypto, 'timingSafeEqual', (a: Buffer, b: Buffer) => {
    compared.push([a.byteLength, b.byteLength])
    return timingSafeEqual(a, b)
  })
  syncBuiltinESMExports()
  t.after(() => {
    mock.reset()
    syncBuiltinESMExports()
  })
  const { url } = await startCoordinator()
  for (const token of ['wrong', 'the-owner-token-of-testX'])
    assert.equal((await submit(url, smallJob(), token)).status, 401)
  assert.equal((await submit(url, smallJob())).status, 201)
  assert.ok(compared.length >= 3, `${compared.length} comparisons`)
  assert.ok(
    compared.every(([a, b]) => a === 32 && b === 32),
    JSON.stringify(compared),
  )
})

// Links by member: who dials, which way frames take, what silence and a bad frame cost, what is left when both dial at
// once.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type Frame,
  type FrameType,
  type GridError,
  HEARTBEAT_MS,
  memberId,
  type MemberId,
  packFrame,
  SILENCE_MS,
  unpackFrame,
  systemClock,
} from '@starling-grid/protocol'
import { ChannelLink, type PeerLink } from '@starling-grid/volunteer'
import { FrameQueue, LinkSet } from '../src/link/link-set.ts'
import { MemoryGrid } from '../src/link/memory-link.ts'

const near = memberId('near')
const far = memberId('far')
const never = new AbortController().signal

interface Seen {
  readonly set: LinkSet
  readonly frames: { readonly from: MemberId; readonly frame: Frame }[]
  readonly lost: { readonly member: MemberId; readonly why: string; readonly error: GridError }[]
  /** resolves when the next frame or loss was seen */
  next(): Promise<void>
}

const noRelay = (): Promise<PeerLink> => Promise.reject(new Error('internal: no relay here'))

function join(
  grid: MemoryGrid,
  id: MemberId,
  openRelay: ConstructorParameters<typeof LinkSet>[1] = noRelay,
  linkOpenMs?: number,
): Seen {
  let wake: () => void = () => undefined
  const seen: Seen = {
    frames: [],
    lost: [],
    set: new LinkSet(
      grid.join(id),
      openRelay,
      {
        onFrame: (from, frame) => {
          seen.frames.push({ from, frame })
          return wake()
        },
        onLost: (member, why, error) => {
          seen.lost.push({ member, why, error })
          return wake()
        },
      },
      { clock: systemClock, linkOpenMs },
    ),
    next: () =>
      new Promise((resolve) => {
        wake = resolve
      }),
  }
  return seen
}

function frame(step: number, type: FrameType = 'partial'): Frame {
  return { type, generation: 1, step, bucket: 0, hop: 0, offset: 0, payload: Uint8Array.of(1, 2, 3, 4) }
}

test('one side dials, the other waits for it, and frames go both ways in order', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const b = join(grid, far)
  await Promise.all([a.set.ensure(far, 'dial', never), b.set.ensure(near, 'await', never)])
  for (let step = 0; step < 50; step++) a.set.send(far, frame(step))
  while (b.frames.length < 50) await b.next()
  assert.deepEqual(
    b.frames.map(({ frame: { step } }) => step),
    Array.from({ length: 50 }, (_, i) => i),
  )
  b.set.send(near, frame(7))
  await a.next()
  assert.equal(a.frames[0]?.from, far)
  a.set.close()
  b.set.close()
})

test('links that closed say no more who may dial: the network has others by then', () => {
  const told: (readonly MemberId[])[] = []
  const network = Object.assign(new MemoryGrid().join(near), {
    expect: (members: readonly MemberId[]) => told.push(members),
  })
  const open = (): LinkSet =>
    new LinkSet(
      network,
      () => Promise.reject(new Error('no relay here')),
      { onFrame: assert.fail, onLost: assert.fail },
      {
        clock: systemClock,
      },
    )
  const before = open()
  before.welcome(far)
  before.close()
  const now = open()
  now.expect([far])
  before.welcome(near)
  before.expect([])
  before.close()
  assert.deepEqual(told, [[far], [], [far]])
  assert.ok(network.onLink !== undefined)
  now.close()
})

test('a link is none, awaited, direct or relayed, and none again when it is lost', async () => {
  const grid = new MemoryGrid()
  const relay = new ChannelLink(far, { bufferedBytes: 0, write: () => undefined, close: () => undefined }, 'relay')
  const [a, b] = [join(grid, near, () => Promise.resolve(relay)), join(grid, far)]
  assert.equal(b.set.stateOf(near), 'none')
  const arrival = b.set.ensure(near, 'await', never)
  assert.equal(b.set.stateOf(near), 'awaited')
  await Promise.all([a.set.ensure(far, 'dial', never), arrival])
  assert.deepEqual([a.set.stateOf(far), b.set.stateOf(near)], ['direct', 'direct'])
  await a.set.ensure(far, 'relay', never)
  assert.equal(a.set.stateOf(far), 'relayed')
  b.set.giveUp('a test')
  assert.equal(b.set.stateOf(near), 'none')
  a.set.close()
  b.set.close()
})

test('links that were awaited and never came leave nothing behind, neither in the set nor on the signal', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near, noRelay, 5)
  const ending = new AbortController()
  let listeners = 0
  const { signal } = ending
  const counted = new Proxy(signal, {
    get(target, key) {
      if (key === 'addEventListener')
        return (...args: Parameters<AbortSignal['addEventListener']>) => {
          listeners++
          return target.addEventListener(...args)
        }
      if (key === 'removeEventListener')
        return (...args: Parameters<AbortSignal['removeEventListener']>) => {
          listeners--
          return target.removeEventListener(...args)
        }
      return Reflect.get(target, key, target) as unknown
    },
  })
  for (let i = 0; i < 20; i++)
    await assert.rejects(a.set.ensure(memberId(`never-${i % 3}`), 'await', counted), { code: 'link-timeout' })
  assert.deepEqual([a.set.awaited, listeners], [0, 0])
  a.set.close()
})

test('what is no frame costs its sender the link, and says why', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const hostile = grid.join(far)
  const link = await hostile.dial(near, never)
  const loss = a.next()
  await link.send(new Uint8Array(100).fill(0x5a))
  await loss
  assert.equal(a.lost[0]?.member, far)
  assert.deepEqual([a.lost[0]?.why, a.lost[0]?.error.code], ['refused', 'message-malformed'])
  assert.equal(a.set.has(far), false)
  a.set.close()
})

test('two links between a pair are one connection until the last of them closes', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const network = grid.join(far)
  const links: PeerLink[] = []
  network.onLink = (link) => links.push(link)
  await a.set.ensure(far, 'dial', never)
  links.push(await network.dial(near, never))
  const received = a.next()
  await links[1]?.send(packFrame(frame(1)))
  await received
  const closed = new Promise<void>((resolve) => {
    if (links[0] !== undefined) links[0].onClose = () => resolve()
  })
  links[0]?.close('one of two')
  await closed
  await new Promise((resolve) => setTimeout(resolve, 0)) // the memory link tells the other side in its next task
  assert.equal(a.lost.length, 0)
  const loss = a.next()
  links[1]?.close('the other')
  await loss
  assert.deepEqual([a.lost[0]?.why, a.lost[0]?.error.code], ['closed', 'link-lost'])
  a.set.close()
})

test('the loss of the link that frames take is told, although a spare one is open', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const network = grid.join(far)
  network.onLink = () => undefined
  await a.set.ensure(far, 'dial', never)
  const newer = await network.dial(near, never)
  const loss = a.next()
  newer.close('frames may be under way')
  await loss
  assert.equal(a.lost[0]?.why, 'closed')
  assert.equal(a.set.has(far), true)
  a.set.close()
})

test('who waits for a link waits as long as links are given', async () => {
  const a = join(new MemoryGrid(), near, noRelay, 40)
  await assert.rejects(a.set.ensure(far, 'await', never), { code: 'link-timeout', message: /within 0.04 s/ })
  a.set.close()
})

test('a new ballot stops a wait for a link', async () => {
  const a = join(new MemoryGrid(), near)
  const ballot = new AbortController()
  const waiting = assert.rejects(a.set.ensure(far, 'await', ballot.signal), /newer ballot/)
  ballot.abort(new Error('newer ballot'))
  await waiting
  a.set.close()
})

test('frames of a relayed pair take the relay, also after a direct link opened again', async () => {
  const grid = new MemoryGrid()
  const direct: Frame[] = []
  const relayed: Frame[] = []
  const network = grid.join(far)
  network.onLink = (link) => {
    link.onFrame = (bytes) => direct.push(unpackFrame(bytes))
  }
  const relay = async (): Promise<PeerLink> => recording(far, relayed)
  const a = join(grid, near, relay)
  await a.set.ensure(far, 'relay', never)
  await a.set.redial(far, never)
  assert.deepEqual([a.set.relayedLinks, a.set.hasDirect(far)], [1, true])
  a.set.send(far, frame(1))
  await new Promise((resolve) => setTimeout(resolve, 5))
  assert.deepEqual([relayed.length, direct.length], [1, 0])
  await a.set.ensure(far, 'dial', never)
  a.set.send(far, frame(2))
  while (direct.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  assert.deepEqual([relayed.length, direct[0]?.step, a.set.relayedLinks], [1, 2, 0])
  a.set.close()
})

test('every link is kept alive by heartbeats, and five missed ones close it', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  let now = 0
  t.mock.method(performance, 'now', () => now)
  const sent: Frame[] = []
  const link = recording(far, sent)
  const a = join(new MemoryGrid(), near, async () => link)
  await a.set.ensure(far, 'relay', never)
  const beat = (): void => {
    now += HEARTBEAT_MS
    t.mock.timers.tick(HEARTBEAT_MS)
  }
  for (let i = 0; i < SILENCE_MS / HEARTBEAT_MS; i++) beat()
  await Promise.resolve()
  assert.deepEqual([a.set.has(far), sent.every(({ type }) => type === 'heartbeat')], [true, true])
  assert.ok(sent.length > 0)
  beat()
  assert.deepEqual([a.set.has(far), a.lost[0]?.why], [false, 'silent'])
  a.set.close()
})

test('who slept himself does not take it for the silence of others', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  let now = 0
  t.mock.method(performance, 'now', () => now)
  const a = join(new MemoryGrid(), near, async () => recording(far, []))
  await a.set.ensure(far, 'relay', never)
  now += 10 * SILENCE_MS
  t.mock.timers.tick(HEARTBEAT_MS)
  assert.equal(a.set.has(far), true)
  a.set.close()
})

test('who gave its links up opens new ones when they are needed', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const b = join(grid, far)
  await Promise.all([a.set.ensure(far, 'dial', never), b.set.ensure(near, 'await', never)])
  a.set.giveUp('slept')
  assert.deepEqual([a.set.has(far), a.lost.map(({ member, why }) => [member, why])], [false, [[far, 'silent']]])
  await a.set.ensure(far, 'dial', never)
  a.set.send(far, frame(1))
  while (b.frames.length === 0) await b.next()
  assert.equal(b.frames[0]?.frame.step, 1)
  a.set.close()
  b.set.close()
})

test('frames of the ring overtake the bulk of a state, which leaves a little at a time', async () => {
  const order: string[] = []
  let buffered = 0
  const slow: PeerLink = Object.assign(recording(far, []), {
    async send(bytes: Uint8Array) {
      order.push(unpackFrame(bytes).type)
      buffered += bytes.byteLength
    },
  })
  Object.defineProperty(slow, 'bufferedBytes', { get: () => buffered })
  const queue = new FrameQueue(slow, systemClock)
  const chunk: Frame = { ...frame(0, 'chunk'), payload: new Uint8Array(60 * 1024) }
  for (let i = 0; i < 20; i++) queue.add(chunk)
  await new Promise((resolve) => setTimeout(resolve, 30))
  const first = order.length
  assert.ok(first >= 2 && first <= 4, `${first} chunks left although nothing was handed to the network`)
  for (let step = 0; step < 5; step++) queue.add(frame(step))
  await new Promise((resolve) => setTimeout(resolve, 30))
  assert.deepEqual(order.slice(first), ['partial', 'partial', 'partial', 'partial', 'partial'])
  while (order.length < 25) {
    buffered = 0
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
})

test('on a link that has room the next frame is one of the ring, whatever bulk waits', async () => {
  const sent: Frame[] = []
  const queue = new FrameQueue(recording(far, sent), systemClock)
  for (let i = 0; i < 3; i++) queue.add(frame(i, 'chunk'))
  for (let step = 0; step < 2; step++) queue.add(frame(step))
  while (sent.length < 5) await new Promise((resolve) => setTimeout(resolve, 5))
  assert.deepEqual(
    sent.map(({ type }) => type),
    ['chunk', 'partial', 'partial', 'chunk', 'chunk'],
  )
})

test('a generation that ends takes its queued frames with it, and no shard of a base (R3)', async () => {
  const sent: Frame[] = []
  let buffered = 1e6
  const slow = Object.defineProperty(recording(far, sent), 'bufferedBytes', { get: () => buffered })
  const queue = new FrameQueue(slow, systemClock)
  for (let i = 0; i < 3; i++) {
    queue.add({ ...frame(i, 'chunk'), generation: 4 })
    queue.add({ ...frame(i, 'chunk'), generation: 0 })
  }
  queue.dropGenerations()
  assert.equal(queue.bulk, 3)
  buffered = 0
  while (queue.bulk > 0) await new Promise((resolve) => setTimeout(resolve, 5))
  assert.deepEqual(
    sent.map(({ step, generation }) => [step, generation]),
    [
      [0, 0],
      [1, 0],
      [2, 0],
    ],
  )
})

test('a state transfer is slow while ring frames wait on another link, and fast afterwards', async (t) => {
  let now = 1000
  t.mock.method(performance, 'now', () => now)
  const sent: Frame[] = []
  let busy = true
  const queue = new FrameQueue(recording(far, sent), systemClock, () => busy)
  for (let i = 0; i < 5; i++) queue.add({ ...frame(0, 'chunk'), payload: new Uint8Array(1000) })
  const looks = async (): Promise<void> => {
    for (let i = 0; i < 4; i++) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  const reaches = async (count: number): Promise<void> => {
    while (sent.length < count) await looks()
  }
  await reaches(1)
  await looks()
  assert.equal(sent.length, 1)
  now += 100
  await reaches(2)
  await looks()
  assert.equal(sent.length, 2)
  busy = false
  await reaches(5)
})

/** A relayed link that only notes what is sent. */
function recording(peer: MemberId, sent: Frame[]): PeerLink {
  return new ChannelLink(
    peer,
    { bufferedBytes: 0, write: (bytes) => void sent.push(unpackFrame(bytes)), close: () => undefined },
    'relay',
  )
}

// Links in memory behave like every other link, and a grid in memory connects those who listen.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isGridError, memberId } from '@starling-grid/protocol'
import { ChannelLink, type Channel } from '@starling-grid/volunteer'
import { farEndOf, peerLinkCases } from '@starling-grid/volunteer/testing'
import { MemoryGrid, memoryLinkPair } from '../src/link/memory-link.ts'

const near = memberId('near')
const far = memberId('far')

for (const { name, run } of peerLinkCases)
  test(`in memory: ${name}`, async () => {
    const [nearEnd, farEnd] = memoryLinkPair(near, far)
    await run(nearEnd, farEndOf(farEnd))
    nearEnd.close('the case is over')
  })

test('a dial reaches the member that listens, under the dialler’s name', async () => {
  const grid = new MemoryGrid()
  const dialler = grid.join(near)
  const listener = grid.join(far)
  const seen: string[] = []
  listener.onLink = (link) => {
    seen.push(link.peer)
    link.onFrame = (frame) => void link.send(Uint8Array.from(frame))
  }
  const link = await dialler.dial(far, new AbortController().signal)
  const echo = new Promise<Uint8Array>((resolve) => {
    link.onFrame = resolve
  })
  await link.send(Uint8Array.of(1, 2, 3))
  assert.deepEqual([...(await echo)], [1, 2, 3])
  assert.deepEqual(seen, [near])
})

test('a dial to a member that does not listen is refused', async () => {
  const grid = new MemoryGrid()
  const dialler = grid.join(near)
  grid.join(far)
  await assert.rejects(
    dialler.dial(far, new AbortController().signal),
    (error) => isGridError(error) && error.code === 'link-timeout',
  )
})

test('a network that stops closes its links and is gone', async () => {
  const grid = new MemoryGrid()
  const dialler = grid.join(near)
  const listener = grid.join(far)
  listener.onLink = () => {}
  const link = await dialler.dial(far, new AbortController().signal)
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  listener.stop()
  assert.match(await closed, /the network stopped/)
  await assert.rejects(dialler.dial(far, new AbortController().signal))
})

test('an aborted dial rejects with the signal’s reason', async () => {
  const grid = new MemoryGrid()
  const dialler = grid.join(near)
  await assert.rejects(dialler.dial(far, AbortSignal.abort(new Error('changed my mind'))), /changed my mind/)
})

const silentChannel: Channel = { bufferedBytes: 0, write() {}, close() {} }

test('an oversize frame from the other side closes the link', async () => {
  const link = new ChannelLink(far, silentChannel, 'memory')
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  link.received(new Uint8Array(1024 * 1024))
  assert.match(await closed, /at most/)
})

test('a close that was not watched is reported to a later watcher', async () => {
  const link = new ChannelLink(far, silentChannel, 'memory')
  link.close('early')
  await Promise.resolve()
  assert.equal(
    await new Promise<string>((resolve) => {
      link.onClose = resolve
    }),
    'early',
  )
})

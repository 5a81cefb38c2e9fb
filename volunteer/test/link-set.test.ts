// Links by member: who dials, what a bad frame costs, and what is left when both dial at once.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Frame, type GridError, memberId, type MemberId, packFrame } from '@starling-grid/protocol'
import { LinkSet, MemoryGrid, type PeerLink } from '@starling-grid/volunteer'

const near = memberId('near')
const far = memberId('far')
const never = new AbortController().signal

interface Seen {
  readonly set: LinkSet
  readonly frames: { readonly from: MemberId; readonly frame: Frame }[]
  readonly lost: { readonly member: MemberId; readonly error: GridError }[]
  /** resolves when the next frame or loss was seen */
  next(): Promise<void>
}

function join(grid: MemoryGrid, id: MemberId): Seen {
  let wake: () => void = () => undefined
  const seen: Seen = {
    frames: [],
    lost: [],
    set: new LinkSet(grid.join(id), {
      onFrame: (from, frame) => (seen.frames.push({ from, frame }), wake()),
      onLost: (member, error) => (seen.lost.push({ member, error }), wake()),
    }),
    next: () => new Promise((resolve) => (wake = resolve)),
  }
  return seen
}

function frame(step: number): Frame {
  return { type: 'partial', generation: 1, step, bucket: 0, hop: 0, offset: 0, payload: Uint8Array.of(1, 2, 3, 4) }
}

test('one side dials, the other waits for it, and frames go both ways in order', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const b = join(grid, far)
  await Promise.all([a.set.ensure(far, true, never), b.set.ensure(near, false, never)])
  for (let step = 0; step < 50; step++) a.set.send(far, frame(step))
  while (b.frames.length < 50) await b.next()
  assert.deepEqual(b.frames.map(({ frame: { step } }) => step), Array.from({ length: 50 }, (_, i) => i))
  b.set.send(near, frame(7))
  await a.next()
  assert.equal(a.frames[0]?.from, far)
  a.set.close()
  b.set.close()
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
  assert.equal(a.lost[0]?.error.code, 'message-malformed')
  assert.equal(a.set.has(far), false)
  a.set.close()
})

test('two links between a pair are one connection until the last of them closes', async () => {
  const grid = new MemoryGrid()
  const a = join(grid, near)
  const network = grid.join(far)
  const links: PeerLink[] = []
  network.onLink = (link) => links.push(link)
  await a.set.ensure(far, true, never)
  links.push(await network.dial(near, never))
  const received = a.next()
  await links[1]?.send(packFrame(frame(1)))
  await received
  const closed = new Promise<void>((resolve) => links[0] !== undefined && (links[0].onClose = () => resolve()))
  links[0]?.close('one of two')
  await closed
  await new Promise((resolve) => setTimeout(resolve, 0)) // the memory link tells the other side in its next task
  assert.equal(a.lost.length, 0)
  const loss = a.next()
  links[1]?.close('the other')
  await loss
  assert.equal(a.lost[0]?.error.code, 'link-lost')
  a.set.close()
})

test('a new ballot stops a wait for a link', async () => {
  const a = join(new MemoryGrid(), near)
  const ballot = new AbortController()
  const waiting = assert.rejects(a.set.ensure(far, false, ballot.signal), /newer ballot/)
  ballot.abort(new Error('newer ballot'))
  await waiting
  a.set.close()
})

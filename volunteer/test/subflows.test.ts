// A link of four connections, of which each takes its own time: it behaves like every other link.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type MemberId, memberId, systemClock } from '@starling-grid/protocol'
import { farEndOf, numberedFrame, peerLinkCases } from '@starling-grid/volunteer/testing'
import { openSubflow, type Subflow } from '../src/link/rtc-subflow.ts'
import { linkToJoin, Subflows } from '../src/link/subflows.ts'
import { MadeUpConnection, wire } from './made-up-connection.ts'

const near = memberId('a'.repeat(32))
const far = memberId('b'.repeat(32))

/** How what one end sends gets to the other. */
type Carry = (deliver: () => void) => void

/** In order, and later: by up to so many ms. */
function late(ms: number): Carry {
  let due: (() => void)[] = []
  return (deliver) => {
    due.push(deliver)
    if (due.length > 1) return
    setTimeout(() => {
      const now = due
      due = []
      for (const each of now) each()
    }, ms)
  }
}

/** At once, but while it stands still; then when it goes on. */
class Stopping {
  #waiting: (() => void)[] | undefined

  readonly carry: Carry = (deliver) => {
    if (this.#waiting === undefined) deliver()
    else this.#waiting.push(deliver)
  }
  stop(): void {
    this.#waiting = []
  }
  goOn(): void {
    const waiting = this.#waiting ?? []
    this.#waiting = undefined
    for (const deliver of waiting) deliver()
  }
}

/** Both ends of a connection. */
async function connected(carry: Carry): Promise<readonly [Subflow, Subflow]> {
  const [ours, theirs] = [new MadeUpConnection(far, true), new MadeUpConnection(near, false)]
  wire(ours.channel, theirs.channel, carry)
  const open = (connection: MadeUpConnection, self: MemberId, dialled: boolean): Promise<Subflow> =>
    openSubflow(connection, { self, dialled, milliseconds: 5000, signal: new AbortController().signal })
  const both = Promise.all([open(ours, near, true), open(theirs, far, false)])
  theirs.announce()
  theirs.channel.open()
  ours.channel.open()
  return both
}

interface Ends {
  readonly near: Subflows
  readonly far: Subflows
  /** of the near end's, by connection */
  readonly subflows: readonly Subflow[]
}

async function linkOf(ways: readonly Carry[]): Promise<Ends> {
  const pairs = await Promise.all(ways.map(connected))
  const [first, ...others] = pairs
  assert.ok(first)
  const parts = { clock: systemClock, more: async () => false }
  const [ours, theirs] = [new Subflows(first[0], parts), new Subflows(first[1], parts)]
  for (const [our, their] of others) assert.ok(ours.join(our) && theirs.join(their))
  return { near: ours, far: theirs, subflows: pairs.map(([our]) => our) }
}

for (const { name, run } of peerLinkCases)
  test(`over four connections: ${name}`, async () => {
    const ends = await linkOf([0, 1, 3, 7].map(late))
    await run(ends.near.link, farEndOf(ends.far.link))
    ends.near.link.close('the case is over')
  })

test('a frame takes the connection with the least under way, so few take one that stands still', async () => {
  const still = new Stopping()
  const { near: ours, far: theirs, subflows } = await linkOf([late(1), late(1), late(1), still.carry])
  const sent = subflows.map(() => 0)
  for (const [i, subflow] of subflows.entries()) {
    const write = subflow.write.bind(subflow)
    subflow.write = (message) => {
      sent[i] = (sent[i] ?? 0) + 1
      write(message)
    }
  }
  const there = farEndOf(theirs.link)
  await there.read()
  still.stop()
  for (let i = 0; i < 4; i++) void ours.link.send(numberedFrame(i, 60_000))
  assert.deepEqual(sent, [1, 1, 1, 1])
  for (let i = 4; i < 60; i++) await ours.link.send(numberedFrame(i, 60_000))
  const [, , , onStill = 0] = sent
  assert.ok(onStill <= 3, `${sent}: its window holds 128 KiB and the frame across the border`)
  still.goOn()
  await there.waitForFrames(60)
  assert.deepEqual(await there.frames(), { count: 60, inOrder: true, intact: true })
})

test('frames wait while an earlier one is under way on a connection that stands still, and none is lost', async () => {
  const { near: ours, far: theirs, subflows } = await linkOf([0, 0].map(late))
  let held: (() => void) | undefined
  const [, still] = subflows
  assert.ok(still)
  const write = still.write.bind(still)
  still.write = (message) => {
    const own = message.slice()
    if (held !== undefined) return write(own)
    held = () => write(own)
  }
  const there = farEndOf(theirs.link)
  await there.read()
  // The second is the one that stands still: too short for a receipt of its own.
  const sends = Array.from({ length: 200 }, (_, i) => ours.link.send(numberedFrame(i, i === 1 ? 100 : 60_000)))
  const accepted = { count: 0 }
  for (const each of sends) void each.then(() => void accepted.count++)
  while (accepted.count < 60) await new Promise((resolve) => setTimeout(resolve, 5))
  await new Promise((resolve) => setTimeout(resolve, 50))
  assert.ok(accepted.count < 75, `${accepted.count} frames of 60 kB left, of which 4 MiB may wait`)
  held?.()
  await Promise.all(sends)
  await there.waitForFrames(200)
  assert.deepEqual(await there.frames(), { count: 200, inOrder: true, intact: true })
})

test('no fifth connection joins', async () => {
  const { near: ours } = await linkOf([0, 0, 0, 0].map(late))
  const [fifth] = await connected(late(0))
  assert.equal(ours.join(fifth), false)
})

test('a receipt of frames that were not sent closes the link', async () => {
  const { near: ours, subflows } = await linkOf([0, 0].map(late))
  const closed = new Promise<string>((resolve) => {
    ours.link.onClose = resolve
  })
  const [first] = subflows
  assert.throws(() => first?.onReceipt({ bytes: 0, next: 1 }, false), { code: 'message-malformed' })
  first?.onReceipt({ bytes: 0, next: 2 ** 32 - 1 }, false) // an old one, which came over a slower way
  ours.link.close('the test is over')
  await closed
})

test('the label of a further connection names the link, and others name none', () => {
  assert.equal(linkToJoin('joins_dc_1'), 'dc_1')
  assert.equal(linkToJoin('dc_1'), undefined)
})

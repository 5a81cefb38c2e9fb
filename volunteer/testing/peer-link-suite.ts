// What every PeerLink must do, as cases without a test runner. Memory links, WebRTC in Node and in tabs, and the bridge
// into a Worker all run them. The far end may live in another process or page, so a case talks to it through FarEnd
// only.
import { FRAME_HEADER_BYTES, HIGH_WATER_BYTES, isGridError } from '@starling-grid/protocol'
import { MAX_EARLY_BYTES, MAX_LINK_FRAME_BYTES } from '../src/link/channel-link.ts'
import type { PeerLink } from '../src/link/peer-link.ts'
import { numberedFrame, type FarEnd } from './far-end.ts'

export interface PeerLinkCase {
  readonly name: string
  run(near: PeerLink, far: FarEnd): Promise<void>
}

const KIB = 1024
const WAITING_FRAME_BYTES = 128 * KIB
/** More than a link over WebRTC takes. */
const FIRST_FRAMES = (4 * HIGH_WATER_BYTES) / WAITING_FRAME_BYTES
/**
 * 128 MiB, of which 64 at once: a kernel that lets a reader's buffer grow to 32 MiB, and a writer's to 4, took
 * 32 MiB at once. While a busy machine lets the sender rest, the reader makes room again.
 */
const MOST_FRAMES = 1024

export const peerLinkCases: readonly PeerLinkCase[] = [
  { name: 'thousands of small frames arrive in order', run: (near, far) => carries(near, far, 5000, 100) },
  { name: 'frames with 60 KiB of payload arrive in order', run: (near, far) => carries(near, far, 300, 60 * KIB) },
  {
    name: 'the largest frames arrive in order',
    run: (near, far) => carries(near, far, 40, MAX_LINK_FRAME_BYTES - FRAME_HEADER_BYTES),
  },
  { name: 'the memory of a frame may be used again once it was accepted', run: reusesMemory },
  { name: 'frames travel in both directions at the same time', run: bothWays },
  { name: 'send waits above the high-water mark', run: sendWaits },
  { name: 'frames that came before anybody read are kept in order', run: keepsEarlyFrames },
  { name: 'a flood before anybody reads closes the link', run: boundsEarlyFrames },
  { name: 'closing here is seen once on both sides', run: closesHere },
  { name: 'closing there is seen once on both sides', run: closesThere },
  { name: 'sends that wait are refused when the link closes', run: refusesWaitingSends },
  { name: 'send after close is refused with link-lost', run: refusesAfterClose },
  { name: 'an oversize frame is refused and harms nothing', run: refusesOversize },
  { name: 'an owner that throws ends the link, not the process', run: survivesThrowingOwner },
]

async function carries(near: PeerLink, far: FarEnd, count: number, payloadBytes: number): Promise<void> {
  await far.read()
  for (let i = 0; i < count; i++) await near.send(numberedFrame(i, payloadBytes))
  await far.waitForFrames(count)
  await expectInOrder(far, count)
}

async function reusesMemory(near: PeerLink, far: FarEnd): Promise<void> {
  await far.read()
  const memory = numberedFrame(0, 60 * KIB)
  for (let i = 0; i < 100; i++) {
    memory.set(numberedFrame(i, 60 * KIB))
    await near.send(memory)
  }
  memory.fill(0)
  await far.waitForFrames(100)
  await expectInOrder(far, 100)
}

async function bothWays(near: PeerLink, far: FarEnd): Promise<void> {
  const back = collect(near)
  await far.read()
  const theirs = far.sendNumbered(200, 60 * KIB)
  for (let i = 0; i < 200; i++) await near.send(numberedFrame(i, 60 * KIB))
  await theirs
  await far.waitForFrames(200)
  await expectInOrder(far, 200)
  await until(() => back.count === 200, 'all frames from the far end')
}

async function sendWaits(near: PeerLink, far: FarEnd): Promise<void> {
  await far.read()
  const sends = await sendUntilOneWaits(near)
  let isOver = false
  const all = Promise.all(sends).finally(() => {
    isOver = true
  })
  let highest = 0
  while (!isOver) {
    highest = Math.max(highest, near.bufferedBytes)
    await pause(1)
  }
  await all
  check(highest <= HIGH_WATER_BYTES + MAX_LINK_FRAME_BYTES, `${highest} bytes were queued`)
  await far.waitForFrames(sends.length)
  await expectInOrder(far, sends.length)
}

/** All sends, of which at least one is not accepted yet. */
async function sendUntilOneWaits(near: PeerLink): Promise<readonly Promise<void>[]> {
  const sends: Promise<void>[] = []
  let accepted = 0
  for (let more = FIRST_FRAMES; sends.length < MOST_FRAMES; more = sends.length) {
    const ready = Array.from({ length: more }, (_, i) => numberedFrame(sends.length + i, WAITING_FRAME_BYTES))
    for (const frame of ready)
      sends.push(
        near.send(frame).then(() => {
          accepted++
        }),
      )
    await Promise.resolve()
    if (accepted < sends.length) return sends
  }
  throw new Error('all sends were accepted at once')
}

async function keepsEarlyFrames(near: PeerLink, far: FarEnd): Promise<void> {
  for (let i = 0; i < 100; i++) await near.send(numberedFrame(i, 10 * KIB))
  await until(() => near.bufferedBytes === 0, 'the frames to leave')
  await pause(50)
  await far.read()
  await near.send(numberedFrame(100, 10))
  await far.waitForFrames(101)
  await expectInOrder(far, 101)
}

async function boundsEarlyFrames(near: PeerLink, far: FarEnd): Promise<void> {
  const closed = watchClose(near)
  const bytes = MAX_EARLY_BYTES + 8 * HIGH_WATER_BYTES
  try {
    for (let sent = 0; sent < bytes; sent += 100 * KIB) await near.send(numberedFrame(0, 100 * KIB))
  } catch (error) {
    check(isGridError(error) && error.code === 'link-lost', `refused with ${String(error)}`)
  }
  await far.waitForClose()
  await until(() => closed.length === 1, 'the close')
}

async function closesHere(near: PeerLink, far: FarEnd): Promise<void> {
  const closed = watchClose(near)
  near.close('done')
  near.close('again')
  await far.waitForClose()
  await pause(50)
  check(closed.length === 1 && closed[0] === 'done', `the near end saw ${JSON.stringify(closed)}`)
  const there = await far.closes()
  check(there.length === 1, `the far end saw ${JSON.stringify(there)}`)
}

async function closesThere(near: PeerLink, far: FarEnd): Promise<void> {
  const closed = watchClose(near)
  await far.close('enough')
  await until(() => closed.length > 0, 'the close')
  near.close('again')
  await pause(50)
  check(closed.length === 1, `the near end saw ${JSON.stringify(closed)}`)
  check((await far.closes()).length === 1, 'the far end saw its own close once')
}

async function refusesWaitingSends(near: PeerLink, far: FarEnd): Promise<void> {
  await far.read()
  const sends = await sendUntilOneWaits(near)
  near.close('in the middle')
  const results = await Promise.allSettled(sends)
  check(results.at(-1)?.status === 'rejected', 'the last send was accepted')
  for (const result of results) if (result.status === 'rejected') expectCode(result.reason, 'link-lost')
}

async function refusesAfterClose(near: PeerLink): Promise<void> {
  near.close('done')
  await expectRejection(near.send(numberedFrame(0, 10)), 'link-lost')
}

async function refusesOversize(near: PeerLink, far: FarEnd): Promise<void> {
  await far.read()
  await expectRejection(near.send(new Uint8Array(MAX_LINK_FRAME_BYTES + 1)), 'message-too-large')
  await carries(near, far, 3, 10)
}

async function survivesThrowingOwner(near: PeerLink, far: FarEnd): Promise<void> {
  const closed = watchClose(near)
  near.onFrame = () => {
    throw new Error('the owner does not like this frame')
  }
  await far.sendNumbered(1, 10)
  await until(() => closed.length === 1, 'the close')
  check(closed[0]?.includes('does not like') === true, `closed because ${closed[0]}`)
  await far.waitForClose()
}

async function expectInOrder(far: FarEnd, count: number): Promise<void> {
  const seen = await far.frames()
  check(seen.inOrder && seen.intact, `frames arrived damaged or out of order: ${JSON.stringify(seen)}`)
  check(seen.count === count, `${count} frames were sent, ${seen.count} arrived`)
}

async function expectRejection(promise: Promise<unknown>, code: string): Promise<void> {
  try {
    await promise
  } catch (error) {
    return expectCode(error, code)
  }
  throw new Error(`expected a refusal with ${code}`)
}

function expectCode(error: unknown, code: string): void {
  check(isGridError(error) && error.code === code, `expected ${code}, got ${String(error)}`)
}

function collect(link: PeerLink): { count: number } {
  const seen = { count: 0 }
  link.onFrame = () => {
    seen.count++
  }
  return seen
}

function watchClose(link: PeerLink): string[] {
  const reasons: string[] = []
  link.onClose = (reason) => reasons.push(reason)
  return reasons
}

function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(message)
}

/** Polls, because a link has no event for what the cases wait for. Milliseconds. */
async function until(condition: () => boolean, what: string, limit = 20_000): Promise<void> {
  for (const end = performance.now() + limit; !condition(); await pause(2))
    if (performance.now() > end) throw new Error(`waited ${limit} ms for ${what}`)
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}

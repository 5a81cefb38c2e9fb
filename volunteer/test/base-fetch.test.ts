// Shards of a base from members: what is believed, who is asked no more, and when the coordinator serves.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  BASE_FORMAT,
  bytesOfHex,
  type Clock,
  type Frame,
  type MemberId,
  memberId,
  type Sha256,
  sha256Of,
  systemClock,
  turnedBy,
} from '@starling-grid/protocol'
import { LinkSet } from '../src/link/link-set.ts'
import { MemoryGrid } from '../src/link/memory-link.ts'
import { BaseFetch, type BaseProgress } from '../src/recovery/base-fetch.ts'
import { BaseServer } from '../src/recovery/base-server.ts'
import { blank } from '../src/recovery/state-server.ts'
import { UploadShare } from '../src/recovery/upload-share.ts'

const NEWCOMER = memberId('ff'.repeat(16))
const MEMBERS = ['0a', '0b', '0c'].map((hex) => memberId(hex.repeat(16)))
const SHARD_BYTES = 150_000

interface Base {
  readonly manifest: Sha256
  readonly blobs: ReadonlyMap<Sha256, Uint8Array>
  readonly shards: readonly Sha256[]
}

/** Of some shards, with the manifest that names them. */
async function made(count: number): Promise<Base> {
  const parts = await Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const bytes = Uint8Array.from({ length: SHARD_BYTES + i }, (_byte, at) => (at * (i + 7)) % 251)
      return [await sha256Of(bytes), bytes] as const
    }),
  )
  const shards = parts.map(([sha256, bytes]) => ({
    sha256,
    bytes: bytes.byteLength,
    parts: [{ name: 'w', row: 0, rows: 1 }],
  }))
  const manifest = new TextEncoder().encode(JSON.stringify({ format: BASE_FORMAT, shards }))
  const name = await sha256Of(manifest)
  return { manifest: name, blobs: new Map([...parts, [name, manifest]]), shards: parts.map(([sha256]) => sha256) }
}

interface MemberOptions {
  readonly blobs: ReadonlyMap<Sha256, Uint8Array>
  readonly uploadBytesPerHour?: number
  /** what it has not may still come */
  readonly isComing?: boolean
  /** in place of an honest answer */
  readonly answer?: (links: LinkSet, from: MemberId, frame: Frame) => void
}

/** What waits to ask again waits for a fiftieth of the time. */
const HASTY: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms / 50, signal) }

interface NewcomerOptions {
  readonly id?: MemberId
  /** ms until a link that it dials opens */
  readonly opensInMs?: number
  readonly clock?: Clock
}

class Bench {
  readonly grid = new MemoryGrid()
  readonly asked = new Map<MemberId, number>()
  readonly #links: LinkSet[] = []
  readonly #base: Base

  constructor(base: Base) {
    this.#base = base
  }

  member(id: MemberId, { blobs, uploadBytesPerHour = 1e9, answer, isComing = false }: MemberOptions): LinkSet {
    const serve = (from: MemberId, frame: Frame): void => {
      this.asked.set(id, (this.asked.get(id) ?? 0) + 1)
      if (answer === undefined) void server.serve(from, frame)
      else answer(links, from, frame)
    }
    const never = () => Promise.reject(new Error('no relay here'))
    const links = new LinkSet(
      this.grid.join(id),
      never,
      { onFrame: serve, onLost: () => undefined },
      { clock: systemClock },
    )
    links.welcome(NEWCOMER)
    this.#links.push(links)
    const server = new BaseServer({
      base: this.#base.manifest,
      uploads: new UploadShare(systemClock, uploadBytesPerHour),
      shardOf: async (name) => blobs.get(name),
      send: (to, frame) => links.send(to, frame),
      waiting: (to) => links.waiting(to),
      isComing: () => isComing,
    })
    return links
  }

  /** One that keeps what it gets, and gives it to others meanwhile. */
  newcomer(sources: readonly MemberId[], { id = NEWCOMER, opensInMs = 0, clock = systemClock }: NewcomerOptions = {}) {
    const fromCoordinator: Sha256[] = []
    const progress: BaseProgress[] = []
    const kept = new Map<Sha256, Uint8Array>()
    const network = this.grid.join(id)
    const dial = network.dial.bind(network)
    const fetch: BaseFetch = new BaseFetch({
      clock,
      network: Object.assign(network, {
        dial: async (member: MemberId, signal: AbortSignal) => {
          if (this.grid.find(member) !== undefined) await systemClock.sleep(opensInMs, signal)
          return dial(member, signal)
        },
      }),
      linkOpenMs: 1000,
      openRelay: () => Promise.reject(new Error('no relay here')),
      seek: () => fetch.found(sources),
      fromCoordinator: async (name) => {
        fromCoordinator.push(name)
        await systemClock.sleep(2)
        return this.#base.blobs.get(name) ?? new Uint8Array()
      },
      onProgress: (now) => progress.push(now),
      onQuestion: (from, frame) => void server.serve(from, frame),
    })
    const server = new BaseServer({
      base: this.#base.manifest,
      uploads: new UploadShare(systemClock, 1e9),
      shardOf: async (name) => kept.get(name),
      send: (to, frame) => fetch.links.send(to, frame),
      waiting: (to) => fetch.links.waiting(to),
      isComing: () => true,
    })
    return { fetch, fromCoordinator, progress, kept }
  }

  close(): void {
    for (const links of this.#links) links.close()
  }
}

/** All shards, as many at once as a base asks for; checked. */
async function fetchAll(fetch: BaseFetch, base: Base): Promise<void> {
  const got = await Promise.all(base.shards.map((name) => fetch.shard(name)))
  for (const [i, bytes] of got.entries()) assert.equal(await sha256Of(bytes), base.shards[i])
}

test('members give a newcomer all shards, each of them some, and the coordinator none', async () => {
  const base = await made(9)
  const bench = new Bench(base)
  for (const id of MEMBERS) bench.member(id, { blobs: base.blobs })
  const { fetch, fromCoordinator, progress } = bench.newcomer(MEMBERS)
  await fetchAll(fetch, base)
  assert.deepEqual(fromCoordinator, [])
  assert.equal(bench.asked.size, MEMBERS.length)
  assert.equal(progress.at(-1)?.members, MEMBERS.length)
  assert.equal(progress.at(-1)?.fromMembers, 9 * SHARD_BYTES + 36)
  fetch.close()
  bench.close()
})

test('while a link may still open the coordinator is not asked, although that to another member failed', async () => {
  const base = await made(3)
  const bench = new Bench(base)
  const [gone, slow] = MEMBERS as [MemberId, MemberId]
  bench.member(slow, { blobs: base.blobs })
  const { fetch, fromCoordinator, progress } = bench.newcomer([gone, slow], { opensInMs: 200 })
  await fetchAll(fetch, base)
  assert.deepEqual(fromCoordinator, [])
  assert.match(progress[0]?.trouble ?? '', /^0a0a0a0a: /)
  assert.equal(progress.at(-1)?.fromMembers, 3 * SHARD_BYTES + 3)
  fetch.close()
  bench.close()
})

test('a room that opens at once takes a base from the coordinator once, and each passes on what it has', async () => {
  const base = await made(12)
  const bench = new Bench(base)
  const ids = Array.from({ length: 10 }, (_, i) => memberId(`${i}c`.repeat(16)))
  const room = ids.map((id, i) => bench.newcomer(turnedBy(id, ids.slice(0, i)).slice(0, 3), { id }))
  for (const { fetch } of room) for (const member of ids) fetch.links.welcome(member)
  await Promise.all(
    room.map(async ({ fetch, kept }) => {
      const names = [base.manifest, ...base.shards]
      for (let at = 0; at < names.length; at += 3)
        await Promise.all(names.slice(at, at + 3).map(async (name) => kept.set(name, await fetch.shard(name))))
    }),
  )
  for (const { kept } of room) for (const [name, bytes] of kept) assert.equal(await sha256Of(bytes), name)
  const asked = room.flatMap(({ fromCoordinator }) => fromCoordinator)
  assert.deepEqual(asked, [base.manifest, ...base.shards])
  const givers = room.filter((one) => one.progress.at(-1)?.fromCoordinator === 0)
  assert.equal(givers.length, 9)
  for (const { fetch } of room) fetch.close()
})

test('a member that fetches the base itself is asked again, until it has had nothing for 20 s', async () => {
  const base = await made(3)
  const bench = new Bench(base)
  const [slow] = MEMBERS as [MemberId]
  const blobs = new Map<Sha256, Uint8Array>()
  bench.member(slow, { blobs, isComing: true })
  let aheadMs = 0
  const clock = { ...systemClock, now: () => systemClock.now() + aheadMs }
  const { fetch, fromCoordinator, progress } = bench.newcomer([slow], { clock })
  const [first, second, third] = base.shards as [Sha256, Sha256, Sha256]
  const coming = fetch.shard(first)
  while ((bench.asked.get(slow) ?? 0) < 2) await systemClock.sleep(5)
  for (const name of [base.manifest, first]) blobs.set(name, base.blobs.get(name) as Uint8Array)
  assert.equal(await sha256Of(await coming), first)
  assert.deepEqual(fromCoordinator, [])
  aheadMs += 30_000
  const late = fetch.shard(second)
  const before = bench.asked.get(slow) ?? 0
  while ((bench.asked.get(slow) ?? 0) < before + 2 && fromCoordinator.length === 0) await systemClock.sleep(5)
  assert.deepEqual(fromCoordinator, [], 'what it gave counts: the 20 s begin with the first question in vain')
  aheadMs += 20_001
  assert.equal(await sha256Of(await late), second)
  await fetch.shard(third)
  assert.deepEqual(fromCoordinator, [second, third])
  assert.match(progress.at(-1)?.trouble ?? '', /nothing that is wanted for 20 s/)
  fetch.close()
  bench.close()
})

test('a source whose link is lost is asked again over a new one, when the coordinator names it again', async () => {
  const base = await made(2)
  const bench = new Bench(base)
  const [moved] = MEMBERS as [MemberId]
  const [first, second] = base.shards as [Sha256, Sha256]
  const before = bench.member(moved, { blobs: base.blobs })
  const { fetch, fromCoordinator, progress } = bench.newcomer([moved], { clock: HASTY })
  await fetch.shard(first)
  before.close()
  bench.member(moved, { blobs: base.blobs })
  await systemClock.sleep(0)
  assert.equal(await sha256Of(await fetch.shard(second)), second)
  assert.deepEqual(fromCoordinator, [])
  assert.deepEqual(progress.at(-1), { fromMembers: 2 * SHARD_BYTES + 1, fromCoordinator: 0, members: 1 })
  fetch.close()
  bench.close()
})

test('four newcomers are served at once, and the next is to ask again', async () => {
  const base = await made(1)
  const waiting = new Map<MemberId, number>()
  const sent: [MemberId, Frame][] = []
  const server = new BaseServer({
    base: base.manifest,
    uploads: new UploadShare(systemClock, 1e9),
    shardOf: async (name) => base.blobs.get(name),
    send: (to, frame) => sent.push([to, frame]),
    waiting: (to) => waiting.get(to) ?? 0,
    isComing: () => false,
  })
  const question: Frame = { ...blank(0), type: 'shard', payload: bytesOfHex(base.manifest) }
  const ids = Array.from({ length: 5 }, (_, i) => memberId(`${i}d`.repeat(16)))
  const [one, fifth] = [ids[0], ids[4]] as [MemberId, MemberId]
  for (const id of ids.slice(0, 4)) {
    await server.serve(id, question)
    waiting.set(id, 1)
  }
  await server.serve(fifth, question)
  assert.deepEqual(
    sent.filter(([to]) => to === fifth).map(([, { type, bucket, payload }]) => [type, bucket, payload.byteLength]),
    [['chunk', 0, 0]],
  )
  waiting.set(one, 0)
  await server.serve(fifth, question)
  assert.ok((sent.at(-1)?.[1].bucket ?? 0) > 0 && sent.at(-1)?.[0] === fifth)
  await server.serve(ids[1] as MemberId, question)
  assert.equal(sent.at(-1)?.[1].type, 'refusal', 'two questions at once')
})

test('a member that lies is asked once, and what it gave is not believed', async () => {
  const base = await made(4)
  const bench = new Bench(base)
  const false_ = new Map(
    [...base.blobs].map(([name, bytes]) => [name, name === base.manifest ? bytes : bytes.map((byte) => byte ^ 1)]),
  )
  const [liar, honest] = MEMBERS as [MemberId, MemberId]
  const links = bench.member(liar, { blobs: false_ })
  bench.member(honest, { blobs: base.blobs })
  const { fetch, fromCoordinator, progress } = bench.newcomer([liar, honest], { clock: HASTY })
  await fetchAll(fetch, base)
  links.close()
  bench.member(liar, { blobs: false_ })
  await systemClock.sleep(100)
  await fetchAll(fetch, base)
  assert.equal(bench.asked.get(liar), 1)
  assert.deepEqual(fromCoordinator, [])
  assert.match(progress.map(({ trouble = '' }) => trouble).join(), /0a0a0a0a: .*other bytes/)
  fetch.close()
  bench.close()
})

test('without a member that serves, the coordinator does, and it is said why', async () => {
  const base = await made(2)
  const bench = new Bench(base)
  const [poor, mad] = MEMBERS as [MemberId, MemberId]
  bench.member(poor, { blobs: base.blobs, uploadBytesPerHour: SHARD_BYTES })
  bench.member(mad, {
    blobs: base.blobs,
    answer: (links, from, frame) =>
      links.send(from, { ...frame, type: 'chunk', bucket: 2 ** 31, payload: new Uint8Array(9) }),
  })
  const { fetch, fromCoordinator, progress } = bench.newcomer([poor, mad])
  await fetchAll(fetch, base)
  assert.equal(fromCoordinator.length, 2)
  const said = progress.map(({ trouble = '' }) => trouble).join()
  assert.match(said, /no more upload in this hour/)
  assert.match(said, /bytes of a shard in their order/)
  fetch.close()
  assert.equal((await fetch.shard(base.shards[0] as Sha256)).byteLength, SHARD_BYTES, 'later reads ask the coordinator')
  bench.close()
})

test('a member gives shards of the base of its job alone', async () => {
  const base = await made(1)
  const other = new TextEncoder().encode('kept for another job')
  const secret = await sha256Of(other)
  const bench = new Bench(base)
  const [only] = MEMBERS as [MemberId]
  bench.member(only, { blobs: new Map([...base.blobs, [secret, other]]) })
  const { fetch, fromCoordinator, progress } = bench.newcomer([only])
  await fetch.shard(secret)
  assert.deepEqual(fromCoordinator, [secret])
  assert.match(progress.at(0)?.trouble ?? '', /is not kept here/)
  fetch.close()
  bench.close()
})

// Shards of a base from members: what is believed, who is asked no more, and when the coordinator serves.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  BASE_FORMAT,
  type Frame,
  type MemberId,
  memberId,
  type Sha256,
  sha256Of,
  systemClock,
} from '@starling-grid/protocol'
import { LinkSet } from '../src/link/link-set.ts'
import { MemoryGrid } from '../src/link/memory-link.ts'
import { BaseFetch, type BaseProgress } from '../src/recovery/base-fetch.ts'
import { BaseServer } from '../src/recovery/base-server.ts'
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
  /** in place of an honest answer */
  readonly answer?: (links: LinkSet, from: MemberId, frame: Frame) => void
}

class Bench {
  readonly grid = new MemoryGrid()
  readonly asked = new Map<MemberId, number>()
  readonly #links: LinkSet[] = []
  readonly #base: Base

  constructor(base: Base) {
    this.#base = base
  }

  member(id: MemberId, { blobs, uploadBytesPerHour = 1e9, answer }: MemberOptions): void {
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
    })
  }

  /** `slowly`: ms until a link that it dials opens */
  newcomer(sources: readonly MemberId[], slowly = 0) {
    const fromCoordinator: Sha256[] = []
    const progress: BaseProgress[] = []
    const network = this.grid.join(NEWCOMER)
    const dial = network.dial.bind(network)
    const fetch = new BaseFetch({
      clock: systemClock,
      network: Object.assign(network, {
        dial: async (member: MemberId, signal: AbortSignal) => {
          if (this.grid.find(member) !== undefined) await systemClock.sleep(slowly, signal)
          return dial(member, signal)
        },
      }),
      linkOpenMs: 1000,
      openRelay: () => Promise.reject(new Error('no relay here')),
      seek: async () => sources,
      fromCoordinator: async (name) => {
        fromCoordinator.push(name)
        return this.#base.blobs.get(name) ?? new Uint8Array()
      },
      onProgress: (now) => progress.push(now),
    })
    return { fetch, fromCoordinator, progress }
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
  const { fetch, fromCoordinator, progress } = bench.newcomer([gone, slow], 200)
  await fetchAll(fetch, base)
  assert.deepEqual(fromCoordinator, [])
  assert.match(progress[0]?.trouble ?? '', /^0a0a0a0a: /)
  assert.equal(progress.at(-1)?.fromMembers, 3 * SHARD_BYTES + 3)
  fetch.close()
  bench.close()
})

test('a member that lies is asked once, and what it gave is not believed', async () => {
  const base = await made(4)
  const bench = new Bench(base)
  const false_ = new Map(
    [...base.blobs].map(([name, bytes]) => [name, name === base.manifest ? bytes : bytes.map((byte) => byte ^ 1)]),
  )
  const [liar, honest] = MEMBERS as [MemberId, MemberId]
  bench.member(liar, { blobs: false_ })
  bench.member(honest, { blobs: base.blobs })
  const { fetch, fromCoordinator, progress } = bench.newcomer([liar, honest])
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

// Versions that members pass on to each other before their rounds (G3): chunk by chunk while they come, believed by the
// coordinator's hashes alone, and from the coordinator where no member gives them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  FETCH_CHUNK_BYTES,
  type Frame,
  GridError,
  type HashList,
  hashChunks,
  isGridError,
  memberId,
  type MemberId,
  packFrame,
  readHashList,
  systemClock,
  unpackFrame,
  versionId,
  writeHashList,
} from '@starling-grid/protocol'
import type { SharedVersion } from '../src/recovery/shared-version.ts'
import { StateFetch, type Wanted } from '../src/recovery/state-fetch.ts'
import { StateServer } from '../src/recovery/state-server.ts'
import { UploadShare } from '../src/recovery/upload-share.ts'

const GENERATION = 5
const VERSION = { v: 3, id: versionId('a'.repeat(64)) }
const OTHER = { v: 4, id: versionId('b'.repeat(64)) }
const [child, one, two] = ['child', 'one', 'two'].map(memberId) as [MemberId, MemberId, MemberId]
const bytes = Uint8Array.from({ length: 2 * FETCH_CHUNK_BYTES + 17 }, (_, i) => (i * 31) % 251)
const never = new AbortController().signal
const MUCH = 1e9

async function hashes(): Promise<HashList> {
  return { total: bytes.byteLength, hashes: await hashChunks(bytes) }
}

/** Members that serve, and one that fetches from them; what the coordinator was asked for. */
class Crowd {
  readonly fetch: StateFetch
  readonly failed: MemberId[] = []
  readonly here: number[] = []
  /** bytes from which on the coordinator served */
  readonly served: number[] = []
  readonly asked: string[] = []
  readonly dialled: MemberId[] = []
  readonly #servers = new Map<MemberId, StateServer>()
  readonly unreachable = new Set<MemberId>()
  ms = 0

  constructor() {
    this.fetch = new StateFetch({
      clock: { ...systemClock, now: () => this.ms },
      reach: async (member) => {
        this.dialled.push(member)
        if (this.unreachable.has(member)) throw new Error('no link')
      },
      send: (to, frame) => {
        this.asked.push((JSON.parse(new TextDecoder().decode(frame.payload)) as { ask: string }).ask)
        setImmediate(() => this.#servers.get(to)?.serve(child, unpackFrame(packFrame(frame))))
      },
    })
  }

  /** A member that begins from this version, too; `change`: what it does with a frame before it leaves. */
  member(id: MemberId, version = VERSION, change = (frame: Frame): Frame => frame, mostBytes = MUCH): SharedVersion {
    const server = new StateServer({
      clock: systemClock,
      mayServe: () => false,
      promised: () => GENERATION,
      bytesOf: () => undefined,
      send: (_, frame) =>
        setImmediate(() => this.fetch.accept(id, unpackFrame(packFrame(change(unpackFrame(packFrame(frame))))))),
    })
    this.#servers.set(id, server)
    return server.share(version, new UploadShare(systemClock, mostBytes))
  }

  async fetches(sources: readonly MemberId[]): Promise<Uint8Array> {
    const wanted: Wanted = {
      kind: 'parameters',
      version: VERSION,
      generation: GENERATION,
      maxBytes: bytes.byteLength,
      list: await hashes(),
      onChunk: (_, { index }) => void this.here.push(index),
      onFailed: (source) => void this.failed.push(source),
    }
    return this.fetch.fetch(wanted, sources, never, async (from) => {
      this.served.push(from)
      return bytes.slice(from)
    })
  }
}

test('a version comes whole from two members, and no byte of it from the coordinator', async () => {
  const crowd = new Crowd()
  for (const id of [one, two]) crowd.member(id).whole(bytes)
  assert.deepEqual(await crowd.fetches([one, two]), bytes)
  assert.deepEqual([crowd.served, crowd.failed, crowd.here.toSorted()], [[], [], [0, 1, 2]])
  assert.deepEqual(new Set(crowd.asked), new Set(['bytes']), 'no member is asked for hashes')
})

test('a member passes on what it has so far, and each further chunk as it comes', async () => {
  const crowd = new Crowd()
  const shared = crowd.member(one)
  const fetched = crowd.fetches([one])
  const partial = new Uint8Array(bytes.byteLength)
  for (let index = 0; index < 3; index++) {
    await until(() => crowd.asked.length === index + 1)
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
    assert.equal(crowd.here.length, index, 'it waits for a chunk that is not there')
    const from = index * FETCH_CHUNK_BYTES
    partial.set(bytes.subarray(from, from + FETCH_CHUNK_BYTES), from)
    shared.chunk(partial, from)
  }
  assert.deepEqual(await fetched, bytes)
  assert.deepEqual([crowd.served, crowd.failed], [[], []])
})

test('threat 42: what a member passes on falsely is not believed, and comes from the coordinator', async () => {
  const crowd = new Crowd()
  const lying = (frame: Frame): Frame => ({ ...frame, payload: frame.payload.map((byte) => byte ^ 1) })
  crowd.member(one, VERSION, (frame) => (frame.type === 'chunk' ? lying(frame) : frame)).whole(bytes)
  assert.deepEqual(await crowd.fetches([one]), bytes)
  assert.deepEqual([crowd.served, crowd.failed], [[0], [one]])
})

test('a liar beside an honest member costs its chunk only', async () => {
  const crowd = new Crowd()
  const lying = (frame: Frame): Frame => ({ ...frame, payload: frame.payload.map((byte) => byte ^ 1) })
  crowd.member(one, VERSION, (frame) => (frame.type === 'chunk' ? lying(frame) : frame)).whole(bytes)
  crowd.member(two).whole(bytes)
  assert.deepEqual(await crowd.fetches([one, two]), bytes)
  assert.deepEqual([crowd.served, crowd.failed], [[], [one]])
})

test('a member that has another version, or whose own fetch fails, is no source', async () => {
  const crowd = new Crowd()
  crowd.member(one, OTHER).whole(bytes)
  const shared = crowd.member(two)
  const fetched = crowd.fetches([one, two])
  await until(() => crowd.asked.length >= 2)
  shared.end()
  assert.deepEqual(await fetched, bytes)
  assert.deepEqual([crowd.served, crowd.failed.toSorted()], [[0], [one, two].toSorted()])
})

test('what came before the only source went away is not fetched again', async () => {
  const crowd = new Crowd()
  const shared = crowd.member(one)
  shared.chunk(bytes, 0)
  const fetched = crowd.fetches([one])
  await until(() => crowd.asked.length === 2)
  crowd.fetch.lost(one)
  assert.deepEqual(await fetched, bytes)
  assert.deepEqual(crowd.served, [FETCH_CHUNK_BYTES])
})

test('a source that no link leads to rests, and the coordinator serves at once meanwhile', async () => {
  const crowd = new Crowd()
  crowd.unreachable.add(one)
  for (let i = 0; i < 2; i++) assert.deepEqual(await crowd.fetches([one]), bytes)
  assert.deepEqual([crowd.dialled, crowd.served, crowd.failed], [[one], [0, 0], [one, one]])
})

test('a member uploads versions within a quarter of what its owner allows in an hour', async () => {
  const crowd = new Crowd()
  crowd.member(one, VERSION, (frame) => frame, 4 * FETCH_CHUNK_BYTES).whole(bytes)
  assert.deepEqual(await crowd.fetches([one]), bytes)
  assert.deepEqual(crowd.served, [FETCH_CHUNK_BYTES], 'after one chunk it gives no more')
})

test('a list of hashes is what it was, and one of another length or of more than is believed is refused', async () => {
  const list = await hashes()
  const written = writeHashList(list)
  assert.deepEqual(readHashList(written, bytes.byteLength), list)
  const refused = (error: unknown): boolean => isGridError(error) && error.code === 'message-malformed'
  assert.throws(() => readHashList(written, bytes.byteLength - 1), refused)
  assert.throws(() => readHashList(written.subarray(0, -1), bytes.byteLength), refused)
  assert.throws(() => readHashList(new Uint8Array(3), bytes.byteLength), refused)
})

test('a member that asks for no bytes, or for more than there are, is refused', async () => {
  const shared = new Crowd().member(one)
  shared.whole(bytes)
  const ask = (from: number, length: number) =>
    shared.when(child, { kind: 'parameters', ask: 'bytes', version: VERSION, from, length })
  const refused = (error: unknown): boolean => error instanceof GridError && error.code === 'message-malformed'
  await assert.rejects(ask(bytes.byteLength - 1, 2), refused)
  await assert.rejects(ask(0, 0), refused)
})

/** All takes place in this process: what has not come to pass after so many turns never will. */
async function until(state: () => boolean): Promise<void> {
  for (let turn = 0; !state(); turn++) {
    assert.ok(turn < 100_000, 'a state that never comes')
    await new Promise((resolve) => setImmediate(resolve))
  }
}

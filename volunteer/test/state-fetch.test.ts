// State from members to a newcomer: whole, checked, from several at once, resumed where it broke off, and never by a
// herd.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  FETCH_CHUNK_BYTES,
  type FetchRequest,
  type Frame,
  type HashList,
  isGridError,
  memberId,
  type MemberId,
  packFrame,
  unpackFrame,
  versionId,
  systemClock,
} from '@starling-grid/protocol'
import { inTurn } from '../src/recovery/catch-up.ts'
import { agreedList } from '../src/recovery/chunk-board.ts'
import { StateFetch, type Wanted } from '../src/recovery/state-fetch.ts'
import { StateServer } from '../src/recovery/state-server.ts'

const [asker, one, two, three] = ['asker', 'one', 'two', 'three'].map(memberId) as [
  MemberId,
  MemberId,
  MemberId,
  MemberId,
]
const wanted: Wanted = {
  kind: 'state',
  version: { v: 3, id: versionId('a'.repeat(64)) },
  generation: 5,
  maxBytes: 16 * FETCH_CHUNK_BYTES,
}
const SHA256_BYTES = 32
const never = new AbortController().signal
const code = (expected: string) => (error: unknown) => isGridError(error) && error.code === expected
const state = Uint8Array.from({ length: 5 * FETCH_CHUNK_BYTES + 17 }, (_, i) => (i * 31) % 251)

interface Source {
  readonly bytes?: Uint8Array
  /** what it does with a frame before it leaves; nothing: swallow it */
  readonly change?: (frame: Frame) => Frame | undefined
}

/** An asker and its sources, joined by packed frames in later tasks. */
class Table {
  readonly fetch: StateFetch
  readonly requests: { readonly from: MemberId; readonly request: FetchRequest }[] = []
  readonly #servers = new Map<MemberId, StateServer>()
  readonly dialled: MemberId[] = []
  readonly unreached: MemberId[] = []
  ms = 0

  constructor(sources: ReadonlyMap<MemberId, Source>, unreachable: readonly MemberId[] = []) {
    this.fetch = new StateFetch({
      clock: { ...systemClock, now: () => this.ms },
      reach: async (member) => {
        this.dialled.push(member)
        if (unreachable.includes(member)) throw new Error('no link')
      },
      onUnreached: (member) => this.unreached.push(member),
      send: (to, frame) => {
        this.requests.push({ from: to, request: JSON.parse(new TextDecoder().decode(frame.payload)) as FetchRequest })
        setImmediate(() => this.#servers.get(to)?.serve(asker, unpackFrame(packFrame(frame))))
      },
    })
    for (const [member, source] of sources) this.#servers.set(member, this.#server(member, source))
  }

  #server(member: MemberId, { bytes = state, change = (frame) => frame }: Source): StateServer {
    return new StateServer({
      clock: systemClock,
      mayServe: (_, generation) => generation === wanted.generation,
      promised: () => wanted.generation,
      bytesOf: () => bytes,
      send: (_, frame) => {
        const changed = change(frame)
        if (changed !== undefined) setImmediate(() => this.fetch.accept(member, unpackFrame(packFrame(changed))))
      },
    })
  }

  askedFor(member: MemberId): number {
    return this.requests.filter(({ from, request }) => from === member && request.ask === 'bytes').length
  }
}

const sources = (entries: readonly [MemberId, Source][]): ReadonlyMap<MemberId, Source> => new Map(entries)

test('a state arrives whole from several members, each of which sends a part', async () => {
  const table = new Table(
    sources([
      [one, {}],
      [two, {}],
      [three, {}],
    ]),
  )
  assert.deepEqual(await table.fetch.fetch(wanted, [one, two, three], never), state)
  for (const member of [one, two, three]) assert.ok(table.askedFor(member) > 0, `${member} was not asked`)
  assert.equal(table.askedFor(one) + table.askedFor(two) + table.askedFor(three), 6, 'no chunk was sent twice')
})

test('a source that no link leads to is asked once, then rests, longer each time, while another can be', async () => {
  const table = new Table(sources([[two, {}]]), [one])
  const again = () => table.fetch.fetch(wanted, [one, two], never)
  for (let i = 0; i < 3; i++) assert.deepEqual(await again(), state)
  assert.deepEqual([table.dialled, table.unreached], [[one, two, two, two], [one]])
  table.ms = 11_000
  for (let i = 0; i < 2; i++) await again()
  table.ms = 22_000
  await again()
  assert.deepEqual(table.unreached, [one, one], 'its second rest is longer')
  await assert.rejects(table.fetch.fetch(wanted, [one], never), code('link-lost'), 'alone it is asked all the same')
})

test('a source that goes away costs the chunk that it was asked for, and the others send the rest', async () => {
  let chunks = 0
  const dying: Source = {
    change: (frame) => {
      if (frame.type !== 'chunk' || ++chunks < 20) return frame
      setImmediate(() => table.fetch.lost(one))
      return undefined
    },
  }
  const table = new Table(
    sources([
      [one, dying],
      [two, {}],
    ]),
  )
  assert.deepEqual(await table.fetch.fetch(wanted, [one, two], never), state)
})

test('a fetch that is broken off by a ballot goes on in the next at its last good chunk', async () => {
  const ballot = new AbortController()
  let chunks = 0
  const first = new Table(
    sources([
      [
        one,
        {
          change: (frame) =>
            frame.type === 'chunk' && ++chunks > 40
              ? (ballot.abort(new Error('a new ballot began')), undefined)
              : frame,
        },
      ],
      [two, {}],
    ]),
  )
  await assert.rejects(first.fetch.fetch(wanted, [one], ballot.signal), /a new ballot/)
  const before = first.requests.length
  assert.deepEqual(await first.fetch.fetch(wanted, [two], never), state)
  const again = first.requests.slice(before).filter(({ request }) => request.ask === 'bytes')
  assert.equal(again.length, 4, 'two of six chunks were here')
})

test('threat 42: a chunk with a wrong byte is refused by its hash and fetched from another member', async () => {
  const liar: Source = {
    change: (frame) =>
      frame.type === 'chunk'
        ? { ...frame, payload: frame.payload.map((byte, i) => (i === 0 ? byte ^ 1 : byte)) }
        : frame,
  }
  const table = new Table(
    sources([
      [one, liar],
      [two, {}],
    ]),
  )
  assert.deepEqual(await table.fetch.fetch(wanted, [one, two], never), state)
})

test('threat 42: of three sources the one that holds other bytes is outvoted', async () => {
  const other = state.map((byte) => byte ^ 3)
  const table = new Table(
    sources([
      [one, { bytes: other }],
      [two, {}],
      [three, {}],
    ]),
  )
  assert.deepEqual(await table.fetch.fetch(wanted, [one, two, three], never), state)
  assert.equal(table.askedFor(one), 0)
})

test('a list that most gave is agreed on; of equally common ones the first', () => {
  const list = (byte: number): HashList => ({ total: 1, hashes: new Uint8Array(32).fill(byte) })
  assert.equal(agreedList([list(1), list(2), list(2)])?.hashes[0], 2)
  assert.equal(agreedList([list(1), list(2)])?.hashes[0], 1)
  assert.equal(agreedList([]), undefined)
})

test('what members could not send comes from the coordinator, from the first missing byte on', async () => {
  let chunks = 0
  const table = new Table(
    sources([
      [
        one,
        {
          change: (frame) =>
            frame.type === 'chunk' && ++chunks > 40 ? (setImmediate(() => table.fetch.lost(one)), undefined) : frame,
        },
      ],
    ]),
  )
  const asked: number[] = []
  const bytes = await table.fetch.fetch(wanted, [one], never, async (from) => {
    asked.push(from)
    return state.slice(from)
  })
  assert.deepEqual(bytes, state)
  assert.deepEqual(asked, [2 * FETCH_CHUNK_BYTES])
})

test('a coordinator that has other bytes is not believed against the members', async () => {
  const table = new Table(
    sources([[one, { change: (frame) => (frame.type === 'hashes' ? frame : { ...frame, bucket: 1 }) }]]),
  )
  await assert.rejects(
    table.fetch.fetch(wanted, [one], never, async () => state.map((byte) => byte ^ 1)),
    code('checksum'),
  )
})

test('without any member the coordinator sends everything', async () => {
  const table = new Table(sources([]), [one])
  assert.deepEqual(await table.fetch.fetch(wanted, [one], never, async (from) => state.slice(from)), state)
})

test('an answer that is larger than the model can need is refused before it is allocated', async () => {
  for (const change of [
    (frame: Frame) => ({ ...frame, bucket: 0xffffffff }),
    (frame: Frame) => ({ ...frame, bucket: 17 * FETCH_CHUNK_BYTES, payload: new Uint8Array(17 * SHA256_BYTES) }),
    (frame: Frame) => ({ ...frame, payload: frame.payload.subarray(1) }),
    (frame: Frame) => ({ ...frame, bucket: 0 }),
  ]) {
    const table = new Table(sources([[one, { change }]]))
    await assert.rejects(table.fetch.fetch(wanted, [one], never), /expected a state as asked for/)
  }
})

test('bytes out of place, too many or of another whole end the talk with their source', async () => {
  for (const change of [
    (frame: Frame) => ({ ...frame, offset: frame.offset + 4 }),
    (frame: Frame) => ({ ...frame, bucket: frame.bucket - 1 }),
    (frame: Frame) => ({ ...frame, payload: new Uint8Array(0) }),
  ]) {
    const table = new Table(sources([[one, { change: (frame) => (frame.type === 'chunk' ? change(frame) : frame) }]]))
    await assert.rejects(table.fetch.fetch(wanted, [one], never), /expected the bytes that were asked for/)
  }
})

test('answers of an older generation change nothing', async () => {
  const table = new Table(
    sources([
      [
        one,
        {
          change: (frame) => {
            table.fetch.accept(one, { ...frame, generation: 4, payload: new Uint8Array(3) })
            return frame
          },
        },
      ],
    ]),
  )
  assert.deepEqual(await table.fetch.fetch(wanted, [one], never), state)
})

test('a herd is served four at a time; the others are told to wait, and then served', () => {
  const answers = new Map<string, string>()
  const server = new StateServer({
    clock: systemClock,
    mayServe: () => true,
    promised: () => 5,
    bytesOf: () => state,
    send: (to, { type }) => answers.set(to, type),
  })
  const ask: Frame = { ...packFetch({ ask: 'bytes', from: 0, length: 100 }) }
  for (let i = 0; i < 6; i++) server.serve(memberId(`newcomer ${i}`), ask)
  assert.deepEqual([...answers.values()], ['chunk', 'chunk', 'chunk', 'chunk', 'refusal', 'refusal'])
  server.forget()
  server.serve(memberId('newcomer 5'), ask)
  assert.equal(answers.get('newcomer 5'), 'chunk')
})

test('who is told to wait asks again until there is room', async () => {
  let refusals = 3
  const busy: Source = {
    change: (frame) =>
      frame.type === 'hashes' && refusals-- > 0
        ? { ...frame, type: 'refusal', payload: new TextEncoder().encode('{"code":"rate-exceeded","message":"busy"}') }
        : frame,
  }
  const table = new Table(sources([[one, busy]]))
  assert.deepEqual(await table.fetch.fetch(wanted, [one], never), state)
  assert.equal(table.requests.filter(({ request }) => request.ask === 'hashes').length, 4)
})

test('a member that may not serve refuses, and says why', async () => {
  const table = new Table(sources([[one, {}]]))
  await assert.rejects(table.fetch.fetch({ ...wanted, generation: 6 }, [one], never), /not held whole in this ballot/)
})

test('a copy of an older version is served to newcomers in the promised ballot, until another takes its place', () => {
  const sent: string[] = []
  const server = new StateServer({
    clock: systemClock,
    mayServe: () => false,
    promised: () => 5,
    bytesOf: () => undefined,
    send: (_, { type, bucket }) => sent.push(`${type} ${bucket}`),
  })
  const ask = (generation: number, kind: FetchRequest['kind'] = 'state'): string | undefined => {
    server.serve(one, { ...packFetch({ ask: 'bytes', from: 0, length: 4, kind }), generation })
    return sent.at(-1)
  }
  assert.equal(ask(5), 'refusal 0')
  server.keep(wanted.version, new Uint8Array(4))
  server.forget()
  assert.equal(ask(5), 'chunk 4', 'it outlives a ballot')
  assert.deepEqual([ask(4), ask(5, 'reduced')], ['refusal 0', 'refusal 0'])
  server.keep({ ...wanted.version, v: wanted.version.v + 1 }, new Uint8Array(5))
  assert.equal(ask(5), 'refusal 0')
  server.stop()
})

test('hostile requests are refused, not served', () => {
  const sent: string[] = []
  const server = new StateServer({
    clock: systemClock,
    mayServe: () => true,
    promised: () => 5,
    bytesOf: () => new Uint8Array(3),
    send: (_, { type }) => sent.push(type),
  })
  const request = (text: string): Frame => ({
    type: 'fetch',
    generation: 5,
    step: 0,
    bucket: 0,
    hop: 0,
    offset: 0,
    payload: new TextEncoder().encode(text),
  })
  for (const text of [
    '{"kind":"everything"}',
    '{',
    `{"kind":"state","ask":"bytes","version":{"v":3,"id":"${'a'.repeat(64)}"},"from":0,"length":99999999}`,
  ])
    assert.throws(() => server.serve(one, request(text)), code('message-malformed'))
  server.serve(one, packFetch({ ask: 'bytes', from: 3, length: 1 }))
  assert.deepEqual(sent, ['refusal'])
})

test('askers begin with members that they are linked to, and each with another one', () => {
  const all = ['1', '2', '3', '4'].map(memberId)
  const first = (self: string, linked: readonly string[]) =>
    inTurn(memberId(self), all, (member) => linked.includes(member))[0]
  assert.equal(first('00000000', ['3']), '3')
  assert.deepEqual(
    ['00000000', '00000001', '00000002', '00000003'].map((self) => first(self, [])),
    ['1', '2', '3', '4'],
  )
  assert.deepEqual(
    inTurn(memberId('0000000f'), [], () => true),
    [],
  )
})

function packFetch(rest: Pick<FetchRequest, 'ask' | 'from' | 'length'> & Partial<Pick<FetchRequest, 'kind'>>): Frame {
  const request: FetchRequest = { kind: 'state', version: wanted.version, ...rest }
  return {
    type: 'fetch',
    generation: 5,
    step: 0,
    bucket: 0,
    hop: 0,
    offset: 0,
    payload: new TextEncoder().encode(JSON.stringify(request)),
  }
}

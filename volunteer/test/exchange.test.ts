// One operation as a machine, driven without links: frames in any order, frames of liars, bytes that are forwarded
// unchanged.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Frame, unpackFrame } from '@starling-grid/protocol'
import fc from 'fast-check'
import { type ChunkEncoding, codecsOf } from '../src/codec/encoding.ts'
import { CollectiveExchange } from '../src/collectives/exchange.ts'
import { cut } from '../src/collectives/group-runner.ts'
import { type Algorithm, algorithmsOf, scheduleOf } from '../src/collectives/moves.ts'
import { stepsOf } from '../src/collectives/steps.ts'
import { RankFailure } from '../src/reduce/rank-failure.ts'

interface Flying {
  readonly from: number
  readonly to: number
  readonly frame: Frame
}

/** An all-reduce of all its ranks, without links. */
class Table {
  readonly sums: Float32Array[]
  readonly exchanges: CollectiveExchange[]
  flying: Flying[] = []

  constructor(
    size: number,
    length: number,
    {
      algorithm = 'ring',
      encoding = { type: 'f32' },
      chunkNumbers = 8,
    }: { algorithm?: Algorithm; encoding?: ChunkEncoding; chunkNumbers?: number } = {},
  ) {
    const schedule = scheduleOf({ collective: 'allReduce', algorithm, size, root: 0 })
    this.sums = Array.from({ length: size }, (_, rank) => Float32Array.from({ length }, (_, i) => valueOf(rank, i)))
    this.exchanges = this.sums.map(
      (sum, rank) =>
        new CollectiveExchange({
          group: 1,
          sequence: 2,
          fingerprint: 3,
          steps: stepsOf(schedule, rank),
          segment: (index) => cut(sum)(index, schedule.segments),
          chunkNumbers,
          ...codecsOf(encoding, algorithm, sum),
          op: 'sum',
        }),
    )
  }

  /** Packs what is ready and delivers what flies, in the order that `pick` chooses, until nothing moves. */
  run(pick: (choices: number) => number = () => 0): void {
    for (;;) {
      this.launch()
      if (this.flying.length === 0) return
      for (const { from, to, frame } of this.flying.splice(pick(this.flying.length), 1))
        at(this.exchanges, to).accept(from, frame)
    }
  }

  launch(): void {
    for (const [from, exchange] of this.exchanges.entries())
      for (const to of exchange.peers)
        for (let bytes = exchange.nextFrame(to); bytes !== undefined; bytes = exchange.nextFrame(to))
          this.flying.push({ from, to, frame: unpackFrame(bytes) })
  }

  /** The first frame to a rank. */
  take(to: number): Flying {
    this.launch()
    const index = this.flying.findIndex((one) => one.to === to)
    return at(this.flying.splice(index, 1), 0)
  }
}

/** Small integers: sums are exact in any order, in f16 as well. */
function valueOf(rank: number, i: number): number {
  return ((i + rank * 7) % 100) - 50
}

function expected(size: number, length: number): Float32Array {
  return Float32Array.from({ length }, (_, i) =>
    Array.from({ length: size }, (_, rank) => valueOf(rank, i)).reduce((a, b) => a + b, 0),
  )
}

function at<T>(values: readonly T[], index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`no element ${index}`)
  return value
}

/** Park and Miller's generator: enough to shuffle, the same on every machine. */
function seeded(seed: number): (below: number) => number {
  let state = (seed % 2147483646) + 1
  return (below) => {
    state = (state * 48271) % 2147483647
    return state % below
  }
}

test('frames in any order give the same bytes, with every algorithm', () => {
  const shape = fc.record({
    size: fc.integer({ min: 1, max: 9 }),
    length: fc.integer({ min: 0, max: 90 }),
    chunkNumbers: fc.integer({ min: 1, max: 20 }),
    algorithm: fc.constantFrom(...algorithmsOf('allReduce')),
  })
  fc.assert(
    fc.property(shape, fc.nat(), ({ size, length, ...options }, seed) => {
      const table = new Table(size, length, options)
      table.run(seeded(seed))
      for (const [rank, exchange] of table.exchanges.entries()) {
        assert.ok(exchange.done)
        assert.deepEqual(at(table.sums, rank), expected(size, length))
      }
    }),
    { numRuns: 400 },
  )
})

test('a rank that is done waits for no other; one that is not names the rank that it waits for', () => {
  const table = new Table(3, 30, { algorithm: 'star' })
  assert.deepEqual([...at(table.exchanges, 0).waitsFor()], [1])
  assert.deepEqual([...at(table.exchanges, 1).waitsFor()], [0])
  assert.ok(at(table.exchanges, 0).needs(2) && !at(table.exchanges, 1).needs(2))
  table.run()
  for (const exchange of table.exchanges)
    assert.ok(exchange.waitsFor().size === 0 && !exchange.needs(0) && !exchange.needs(1))
})

test('bytes that are known to come and go are those that do', () => {
  for (const algorithm of algorithmsOf('allReduce'))
    for (const type of algorithm === 'ring' || algorithm === 'direct'
      ? (['f32', 'f16', 'int8'] as const)
      : (['f32'] as const)) {
      const table = new Table(5, 1000, { algorithm, encoding: { type }, chunkNumbers: 64 })
      const foreseen = table.exchanges.map((exchange) => exchange.peers.map((peer) => [peer, exchange.bytesTo(peer)]))
      const sent = table.exchanges.map(() => new Map<number, number>())
      table.run((choices) => {
        const { from, to, frame } = at(table.flying, choices - 1)
        sent[from]?.set(to, (sent[from]?.get(to) ?? 0) + frame.payload.byteLength)
        return choices - 1
      })
      foreseen.forEach((peers, rank) => {
        for (const [peer = 0, bytes = 0] of peers)
          assert.equal(sent[rank]?.get(peer) ?? 0, bytes, `${algorithm} ${type}: ${rank} to ${peer}`)
      })
    }
})

test('final bytes are forwarded unchanged, so that all ranks decode the same', () => {
  for (const type of ['f16', 'int8'] as const)
    for (const algorithm of ['ring', 'direct'] as const) {
      const table = new Table(4, 1003, { algorithm, encoding: { type }, chunkNumbers: 100 })
      const finals = new Map<number, string>()
      table.run((choices) => {
        const { frame } = at(table.flying, choices - 1)
        const bytes = frame.payload.join()
        if (frame.type === 'reduced') assert.equal(finals.get(frame.offset) ?? bytes, bytes)
        if (frame.type === 'reduced') finals.set(frame.offset, bytes)
        return choices - 1
      })
      assert.equal(finals.size, 12)
      for (const sum of table.sums) assert.deepEqual(sum, table.sums[0])
    }
})

test('a frame that does not fit names its sender and is not used', () => {
  const wrong: readonly (readonly [RegExp, string, (frame: Frame) => Frame])[] = [
    [/another operation/, 'message-unexpected', (frame) => ({ ...frame, bucket: 4 })],
    [/none begins/, 'message-malformed', (frame) => ({ ...frame, offset: frame.offset + 1 })],
    [/none begins/, 'message-malformed', (frame) => ({ ...frame, offset: 0xffffffff })],
    [/none is due/, 'message-unexpected', (frame) => ({ ...frame, hop: frame.hop + 1 })],
    [/none is due/, 'message-unexpected', (frame) => ({ ...frame, type: 'reduced' })],
    [/bytes for the chunk/, 'message-malformed', (frame) => ({ ...frame, payload: frame.payload.subarray(4) })],
    [/bytes for the chunk/, 'message-malformed', (frame) => ({ ...frame, payload: new Uint8Array(0) })],
  ]
  for (const [message, code, change] of wrong) {
    const table = new Table(3, 30)
    const { from, frame } = table.take(1)
    const before = at(table.sums, 1).slice()
    assert.throws(
      () => at(table.exchanges, 1).accept(from, change(frame)),
      (error) =>
        error instanceof RankFailure && error.rank === from && error.code === code && message.test(error.message),
    )
    assert.deepEqual(at(table.sums, 1), before)
  }
})

test('a frame that comes twice, or from another rank, is refused', () => {
  const table = new Table(3, 30)
  const { from, frame } = table.take(1)
  assert.throws(() => at(table.exchanges, 1).accept(2, frame), { rank: 2, code: 'message-unexpected' })
  at(table.exchanges, 1).accept(from, frame)
  assert.throws(() => at(table.exchanges, 1).accept(from, frame), { rank: from, code: 'message-unexpected' })
})

test('bytes that do not decode name their sender, also when they are used later', () => {
  const table = new Table(3, 30, { algorithm: 'direct', encoding: { type: 'int8' } })
  const spoilt = (frame: Frame): Frame => ({
    ...frame,
    payload: Uint8Array.from(frame.payload).fill(0x80, frame.payload.byteLength - 1),
  })
  const fromLast =
    table.flying.length === 0
      ? (table.launch(),
        at(
          table.flying,
          table.flying.findIndex(({ from, to }) => from === 2 && to === 0),
        ))
      : undefined
  const fromMiddle = at(
    table.flying,
    table.flying.findIndex(({ from, to }) => from === 1 && to === 0),
  )
  if (fromLast === undefined) throw new Error('nothing flies')
  at(table.exchanges, 0).accept(2, spoilt(fromLast.frame)) // rank 1's share comes first
  assert.throws(() => at(table.exchanges, 0).accept(1, fromMiddle.frame), { rank: 2, code: 'message-malformed' })
})

test('any bytes as a frame are accepted or refused, never anything else', () => {
  const field = fc.oneof(fc.integer({ min: 0, max: 40 }), fc.nat(0xffffffff))
  const frames = fc.record({
    type: fc.constantFrom('partial', 'reduced', 'chunk', 'refusal', 'fetch' as const),
    generation: fc.constant(1),
    step: fc.constant(2),
    bucket: fc.constantFrom(3, 4),
    hop: field,
    offset: field,
    payload: fc.uint8Array({ maxLength: 40, size: 'max' }),
  })
  fc.assert(
    fc.property(
      fc.array(frames, { maxLength: 20, size: 'max' }),
      fc.constantFrom<ChunkEncoding['type']>('f32', 'f16', 'int8'),
      (list, type) => {
        const table = new Table(4, 60, { algorithm: 'direct', encoding: { type } })
        for (const frame of list)
          try {
            at(table.exchanges, 0).accept(1, frame)
          } catch (error) {
            assert.ok(error instanceof RankFailure)
          }
      },
    ),
    { numRuns: 500 },
  )
})

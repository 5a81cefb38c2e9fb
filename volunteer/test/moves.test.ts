// Every schedule for every size, played with sets of contributors instead of numbers: who ends with what, and who sends
// how much.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { algorithmsOf, type Algorithm, type Collective, type Schedule, scheduleOf } from '../src/collectives/moves.ts'
import { stepsOf } from '../src/collectives/steps.ts'

const SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9]

/** holdings[rank][segment][contributor]: how often that rank's share is in there */
type Holdings = number[][][]

/** Plays the moves round by round: all sends of a round carry what was held when it began. */
function play({ moves }: Schedule, holdings: Holdings): Holdings {
  const rounds = moves.reduce((most, { round }) => Math.max(most, round + 1), 0)
  for (let round = 0; round < rounds; round++) {
    const before = structuredClone(holdings)
    for (const { from, to, first, end, effect } of moves.filter((move) => move.round === round))
      for (let segment = first; segment < end; segment++) {
        const [sent, held] = [at(at(before, from), segment), at(at(holdings, to), segment)]
        at(holdings, to)[segment] =
          effect === 'store' ? [...sent] : held.map((count, contributor) => count + at(sent, contributor))
      }
  }
  return holdings
}

/** Every rank holds its own assignment of every segment. */
function ownShares(size: number, segments: number): Holdings {
  return upTo(size).map((rank) => upTo(segments).map(() => only(size, rank)))
}

/** A rank holds what `has` says, and nothing elsewhere. */
function onlyWhere(size: number, segments: number, has: (rank: number, segment: number) => boolean): Holdings {
  return upTo(size).map((rank) =>
    upTo(segments).map((segment) => (has(rank, segment) ? only(size, rank) : upTo(size).map(() => 0))),
  )
}

function only(size: number, rank: number): number[] {
  return upTo(size).map((contributor) => Number(contributor === rank))
}

function forEachSize(collective: Collective, run: (size: number, algorithm: Algorithm) => void): void {
  for (const algorithm of algorithmsOf(collective)) for (const size of SIZES) run(size, algorithm)
}

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i)
}

function at<T>(values: readonly T[], index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`no element ${index}`)
  return value
}

test('all-reduce: each assignment is in each sum exactly once, on every rank', () => {
  forEachSize('allReduce', (size, algorithm) => {
    const schedule = scheduleOf({ collective: 'allReduce', algorithm, size, root: 0 })
    for (const [rank, segments] of play(schedule, ownShares(size, schedule.segments)).entries())
      assert.ok(
        segments.flat().every((count) => count === 1),
        `${algorithm}, ${size} ranks: rank ${rank} holds ${JSON.stringify(segments)}`,
      )
  })
})

test('reduce-scatter: rank r ends with the whole sum of segment r', () => {
  forEachSize('reduceScatter', (size, algorithm) => {
    const schedule = scheduleOf({ collective: 'reduceScatter', algorithm, size, root: 0 })
    const end = play(schedule, ownShares(size, size))
    for (let rank = 0; rank < size; rank++)
      assert.ok(
        at(at(end, rank), rank).every((count) => count === 1),
        `${algorithm}, ${size} ranks`,
      )
  })
})

test('all-gather: segment r is rank r’s on every rank', () => {
  forEachSize('allGather', (size, algorithm) => {
    const schedule = scheduleOf({ collective: 'allGather', algorithm, size, root: 0 })
    const end = play(
      schedule,
      onlyWhere(size, size, (rank, segment) => rank === segment),
    )
    for (const segments of end) segments.forEach((held, segment) => assert.deepEqual(held, only(size, segment)))
  })
})

test('broadcast and reduce: from and to every root', () => {
  for (const collective of ['broadcast', 'reduce'] as const)
    forEachSize(collective, (size, algorithm) => {
      for (let root = 0; root < size; root++) {
        const end = play(scheduleOf({ collective, algorithm, size, root }), ownShares(size, 1))
        if (collective === 'reduce')
          assert.ok(
            at(at(end, root), 0).every((count) => count === 1),
            `${algorithm}, ${size} ranks to ${root}`,
          )
        else
          for (const [held] of end) assert.deepEqual(held, only(size, root), `${algorithm}, ${size} ranks from ${root}`)
      }
    })
})

test('gather, scatter and all-to-all move every part to its place', () => {
  for (const size of SIZES) {
    for (let root = 0; root < size; root++) {
      const gathered = play(
        scheduleOf({ collective: 'gather', algorithm: 'star', size, root }),
        onlyWhere(size, size, (rank, segment) => rank === segment),
      )
      at(gathered, root).forEach((held, segment) => assert.deepEqual(held, only(size, segment)))
      const scattered = play(
        scheduleOf({ collective: 'scatter', algorithm: 'star', size, root }),
        onlyWhere(size, size, (rank) => rank === root),
      )
      for (let rank = 0; rank < size; rank++) assert.deepEqual(at(at(scattered, rank), rank), only(size, root))
    }
    const exchanged = play(
      scheduleOf({ collective: 'allToAll', algorithm: 'direct', size, root: 0 }),
      onlyWhere(size, size * size, (rank, segment) => Math.floor(segment / size) === rank),
    )
    for (let from = 0; from < size; from++)
      for (let to = 0; to < size; to++) assert.deepEqual(at(at(exchanged, to), from * size + to), only(size, from))
  }
})

test('a ring sends to one neighbour and receives from the other', () => {
  for (const collective of ['allReduce', 'reduceScatter', 'allGather'] as const)
    for (const size of SIZES)
      for (const { from, to } of scheduleOf({ collective, algorithm: 'ring', size, root: 0 }).moves)
        assert.equal(to, (from + 1) % size)
})

test('ring, direct and butterfly send 2(N−1)/N of the vector from every rank', () => {
  for (const [algorithm, sizes] of [
    ['ring', SIZES],
    ['direct', SIZES],
    ['butterfly', [1, 2, 4, 8]],
  ] as const)
    for (const size of sizes) {
      const { segments, moves } = scheduleOf({ collective: 'allReduce', algorithm, size, root: 0 })
      for (let rank = 0; rank < size; rank++) {
        const sent = moves.filter(({ from }) => from === rank).reduce((sum, { first, end }) => sum + end - first, 0)
        assert.equal(sent / segments, (2 * (size - 1)) / size, `${algorithm}, ${size} ranks`)
      }
    }
})

test('what one rank sends, another one expects: in the same round, for the same segment, with the same effect', () => {
  for (const collective of [
    'allReduce',
    'reduceScatter',
    'allGather',
    'broadcast',
    'reduce',
    'gather',
    'scatter',
    'allToAll',
  ] as const)
    forEachSize(collective, (size, algorithm) => {
      const schedule = scheduleOf({ collective, algorithm, size, root: size - 1 })
      const lists = upTo(size).map((rank) => stepsOf(schedule, rank))
      const name = (from: number, to: number, rest: string): string => `${from}→${to} ${rest}`
      const both = ['send', 'receive'].map((kind) =>
        lists
          .flatMap((segments, rank) =>
            segments.flatMap((steps, segment) =>
              steps
                .filter((step) => step.kind === kind)
                .map(({ peer, round, effect }) =>
                  kind === 'send'
                    ? name(rank, peer, `${segment} ${round} ${effect}`)
                    : name(peer, rank, `${segment} ${round} ${effect}`),
                ),
            ),
          )
          .sort(),
      )
      assert.deepEqual(both[0], both[1])
      assert.equal(new Set(both[0]).size, both[0]?.length, 'a round sends a segment to a rank once')
    })
})

test('an algorithm that a collective does not have is refused', () => {
  assert.throws(() => scheduleOf({ collective: 'gather', algorithm: 'butterfly', size: 4, root: 0 }), {
    code: 'unsupported',
    message: /star/,
  })
})

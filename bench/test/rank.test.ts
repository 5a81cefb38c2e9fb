// The all-reduce benchmark's ranks in memory: what they time is right, and raw is nothing but bytes.
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { type MemberId, newMemberId } from '@starling-grid/protocol'
import { type Communicator, networkMesh, openCommunicator } from '@starling-grid/volunteer'
import { MemoryGrid } from '@starling-grid/volunteer/testing'
import { type Rank, type RankCommand, rawMembers, startRank } from '../src/rank.ts'

const SIZE = 3
const NUMBERS = 100_000

async function startRanks(
  t: TestContext,
): Promise<{ readonly ranks: readonly Rank[]; readonly groups: readonly Communicator[] }> {
  const grid = new MemoryGrid()
  const members = Array.from({ length: SIZE }, newMemberId)
  const raw = rawMembers(members)
  const mesh = (names: readonly MemberId[], rank: number) =>
    networkMesh(grid.join(names[rank] ?? newMemberId()), names, rank)
  const groups = members.map((_, rank) => openCommunicator(mesh(members, rank)))
  t.after(() => Promise.all(groups.map((group) => group.close())))
  const ranks = await Promise.all(
    groups.map((group, rank) => startRank({ group, rawMesh: mesh(raw, rank), cpuMs: () => 0 })),
  )
  return { ranks, groups }
}

const all = (ranks: readonly Rank[], order: RankCommand) => Promise.all(ranks.map((rank) => rank(order)))

test('ranks check the sums that they will time, in f32 and encoded', async (t) => {
  const { ranks } = await startRanks(t)
  for (const encoding of ['f32', 'int8'] as const)
    for (const { milliseconds } of await all(ranks, { type: 'check', numbers: NUMBERS, encoding }))
      assert.ok(milliseconds > 0)
})

test('a wrong sum is refused before anything is timed', async (t) => {
  const { ranks, groups } = await startRanks(t)
  const [first] = groups
  assert.ok(first)
  first.allReduce = async (values) => values // adds nothing
  await assert.rejects(
    ranks[0]?.({ type: 'check', numbers: NUMBERS, encoding: 'f32' }) ?? Promise.resolve(),
    /number 0 is -50, expected -129: nothing to time/,
  )
})

test('raw sends as many bytes as a reduce, over links that the group does not use', async (t) => {
  const { ranks, groups } = await startRanks(t)
  const sent = (): number => groups.reduce((sum, { bytesSent }) => sum + bytesSent, 0)
  await all(ranks, { type: 'reduce', numbers: NUMBERS, encoding: 'f32' })
  const reduced = sent()
  assert.ok(reduced >= 2 * (SIZE - 1) * 4 * NUMBERS, `${reduced} bytes`)
  await all(ranks, { type: 'raw', numbers: NUMBERS, encoding: 'f32' })
  assert.ok(sent() - reduced < 4 * NUMBERS, 'the group carried raw bytes')
})

// Groups over links in memory: the shared suite, then what only shows where the links are ours to break.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Frame, newMemberId, packFrame } from '@starling-grid/protocol'
import { type Communicator, openCommunicator } from '../src/collectives/communicator.ts'
import { fingerprint } from '../src/collectives/group-runner.ts'
import { networkMesh } from '../src/collectives/mesh.ts'
import { MemoryGrid } from '../src/link/memory-link.ts'
import type { PeerNetwork } from '../src/link/peer-link.ts'
import { RankFailure } from '../src/reduce/rank-failure.ts'
import { communicatorCases } from '../testing/communicator-suite.ts'
import { slowNetwork } from '../testing/slow-link.ts'

interface Rank {
  readonly group: Communicator
  readonly network: PeerNetwork
  /** how many links it opened or was given */
  links: number
}

function open(
  size: number,
  t: { after(run: () => Promise<unknown>): void },
  over: (network: PeerNetwork) => PeerNetwork = (network) => network,
): Rank[] {
  const grid = new MemoryGrid()
  const members = Array.from({ length: size }, () => newMemberId())
  const ranks = members.map((member, index): Rank => {
    const network = over(grid.join(member))
    const rank: Rank = {
      network,
      links: 0,
      group: openCommunicator(
        networkMesh(
          counting(network, () => rank.links++),
          members,
          index,
        ),
      ),
    }
    return rank
  })
  t.after(() => Promise.all(ranks.map(({ group }) => group.close())))
  return ranks
}

function counting(network: PeerNetwork, count: () => void): PeerNetwork {
  return {
    dial: (peer, signal) => {
      count()
      return network.dial(peer, signal)
    },
    set onLink(handler: PeerNetwork['onLink']) {
      network.onLink =
        handler === undefined
          ? undefined
          : (link) => {
              count()
              return handler(link)
            }
    },
    get onLink() {
      return network.onLink
    },
    expect: (expected) => network.expect(expected),
    reconnect: (access) => network.reconnect(access),
    stop: () => network.stop(),
  }
}

function all<T>(ranks: readonly Rank[], run: (group: Communicator) => Promise<T>): Promise<T[]> {
  return Promise.all(ranks.map(({ group }) => run(group)))
}

function at<T>(values: readonly T[], index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`no element ${index}`)
  return value
}

const named =
  (rank: number, code: string) =>
  (error: unknown): boolean =>
    error instanceof RankFailure && error.rank === rank && error.code === code

for (const size of [1, 2, 3, 4, 5])
  test(`${size} ranks in memory`, async (t) => {
    const ranks = open(size, t)
    for (const { name, run } of communicatorCases) await t.test(name, async () => void (await all(ranks, run)))
  })

test('a ring opens links to neighbours only; others are opened when they are needed', async (t) => {
  const ranks = open(5, t)
  await all(ranks, (group) => group.allReduce(new Float32Array(1000), { algorithm: 'ring' }))
  assert.deepEqual(
    ranks.map(({ links }) => links),
    [2, 2, 2, 2, 2],
  )
  await Promise.all([at(ranks, 0).group.send(Uint8Array.of(1), 2), at(ranks, 2).group.recv(new Uint8Array(1), 0)])
  assert.deepEqual(
    ranks.map(({ links }) => links),
    [3, 2, 3, 2, 2],
  )
  await all(ranks, (group) => group.allReduce(new Float32Array(1000), { algorithm: 'direct' }))
  assert.deepEqual(
    ranks.map(({ links }) => links),
    [4, 4, 4, 4, 4],
  )
})

test('a rank that is lost in the middle is named on all others, at once', async (t) => {
  const ranks = open(4, t)
  await all(ranks, (group) => group.allReduce(Int32Array.of(1), { algorithm: 'ring' }))
  const sums = [0, 1, 3].map((rank) =>
    at(ranks, rank).group.allReduce(new Float32Array(100_000), { algorithm: 'ring' }),
  )
  const failed = sums.map((sum) => assert.rejects(sum, named(2, 'link-lost')))
  at(ranks, 2).network.stop()
  await Promise.all(failed)
})

test('the survivors go on in a subgroup', async (t) => {
  const ranks = open(4, t)
  await all(ranks, (group) => group.barrier())
  at(ranks, 1).network.stop()
  const survivors = [0, 2, 3].map((rank) => at(ranks, rank).group)
  await Promise.all(
    survivors.map((group) =>
      assert.rejects(group.allReduce(Int32Array.of(1), { algorithm: 'direct' }), named(1, 'link-lost')),
    ),
  )
  const sums = await Promise.all(survivors.map((group) => group.subgroup([0, 2, 3]).allReduce(Int32Array.of(1))))
  assert.deepEqual(
    sums.map(([sum]) => sum),
    [3, 3, 3],
  )
})

test('who waits for a rank that waits as well does not blame it', async (t) => {
  const ranks = open(3, t)
  await all(ranks, (group) => group.barrier())
  const timeoutMs = 1200
  const waits = (rank: number): Promise<void> =>
    assert.rejects(
      at(ranks, rank).group.allReduce(Int32Array.of(1), { algorithm: 'star', timeoutMs }),
      named(2, 'reduce-timeout'),
    )
  // Rank 1's time is up first; it waits for rank 0, which waits for rank 2.
  const early = waits(1)
  await new Promise((resolve) => setTimeout(resolve, timeoutMs / 4))
  await Promise.all([early, waits(0)])
})

test('operations with a rank that was lost before fail at once', async (t) => {
  const ranks = open(2, t)
  await all(ranks, (group) => group.barrier())
  at(ranks, 1).network.stop()
  const { group } = at(ranks, 0)
  await assert.rejects(group.recv(new Uint8Array(1), 1), named(1, 'link-lost'))
  await assert.rejects(group.allReduce(Int32Array.of(1)), named(1, 'link-lost'))
})

test('a large vector does not leave before the receiver has begun', async (t) => {
  const ranks = open(2, t)
  const [sender, receiver] = [at(ranks, 0).group, at(ranks, 1).group]
  const sending = sender.send(new Float32Array(1_000_000), 1)
  // Both have spoken on the same link since, so anything that had left before has come.
  await Promise.all([sender.barrier(), receiver.barrier()])
  assert.ok(sender.bytesSent < 1000, `${sender.bytesSent} bytes have left`)
  await Promise.all([sending, receiver.recv(new Float32Array(1_000_000), 0)])
  assert.ok(sender.bytesSent > 4_000_000)
})

test('an all-reduce sends 2(N−1)/N of the vector, and less with encodings', async (t) => {
  const ranks = open(4, t)
  const length = 400_000
  const sentBy = async (run: (group: Communicator) => Promise<unknown>): Promise<number> => {
    const before = ranks.map(({ group }) => group.bytesSent)
    await all(ranks, run)
    return Math.max(...ranks.map(({ group }, i) => group.bytesSent - at(before, i)))
  }
  await all(ranks, (group) => group.allReduce(new Float32Array(10), { algorithm: 'direct' }))
  const plain = 1.5 * 4 * length
  for (const algorithm of ['ring', 'direct'] as const) {
    const [f32, f16] = [
      await sentBy((group) => group.allReduce(new Float32Array(length), { algorithm })),
      await sentBy((group) => group.allReduce(new Float32Array(length), { algorithm, encoding: { type: 'f16' } })),
    ]
    assert.ok(f32 >= plain && f32 < 1.01 * plain, `${f32} bytes`)
    assert.ok(f16 >= plain / 2 && f16 < 1.01 * (plain / 2), `${f16} bytes`)
  }
  const int8 = await sentBy((group) =>
    group.allReduce(new Float32Array(length), { algorithm: 'direct', encoding: { type: 'int8' } }),
  )
  assert.ok(plain / int8 > 3.8, `${plain / int8} times less`)
})

const hostile: readonly (readonly [what: string, code: string, bytes: () => Uint8Array<ArrayBuffer>])[] = [
  ['no frame', 'message-malformed', () => new Uint8Array(100).fill(7)],
  ['a frame with a wrong checksum', 'checksum', () => spoilt(packFrame(frameOf({ payload: new Uint8Array(8) })))],
  ['a frame of another kind', 'message-unexpected', () => packFrame(frameOf({ type: 'manifest' }))],
  [
    'a word about no kind of operation',
    'message-malformed',
    () => packFrame(frameOf({ type: 'heartbeat', bucket: 99 })),
  ],
]

function frameOf(fields: Partial<Frame>): Frame {
  return {
    type: 'partial',
    generation: 1,
    step: 0,
    bucket: 0,
    hop: 0,
    offset: 0,
    payload: new Uint8Array(0),
    ...fields,
  }
}

function spoilt(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  bytes[40] = 99
  return bytes
}

/** A group of two whose rank 0 is ours to send anything, over the link that the other's group uses. */
async function withLiar(t: {
  after(run: () => Promise<unknown>): void
}): Promise<{ readonly group: Communicator; readonly say: (bytes: Uint8Array<ArrayBuffer>) => Promise<void> }> {
  const grid = new MemoryGrid()
  const members = [newMemberId(), newMemberId()]
  const [liar, honest] = members.map((member) => grid.join(member))
  if (liar === undefined || honest === undefined) throw new Error('two members')
  const group = openCommunicator(networkMesh(honest, members, 1))
  t.after(() => group.close())
  const link = await liar.dial(at(members, 1), new AbortController().signal)
  await link.send(packFrame(frameOf({ type: 'heartbeat', generation: 0 })))
  return { group, say: (bytes) => link.send(bytes) }
}

for (const [what, code, bytes] of hostile)
  test(`a rank that sends ${what} is dropped and named`, async (t) => {
    const { group, say } = await withLiar(t)
    const sum = group.allReduce(new Float32Array(10), { algorithm: 'star' })
    await say(bytes())
    await assert.rejects(sum, named(0, code))
  })

test('a rank that floods operations which no other began is dropped', async (t) => {
  const { group, say } = await withLiar(t)
  const flood = async (): Promise<void> => {
    for (let step = 0; ; step++)
      await say(packFrame(frameOf({ generation: 7, step, payload: new Uint8Array(200_000) })))
  }
  await assert.rejects(flood(), { code: 'link-lost' })
  await assert.rejects(group.barrier(), named(0, 'rate-exceeded'))
})

test('a refusal that blames no rank of the group blames its sender, and its text is harmless', async (t) => {
  const { group, say } = await withLiar(t)
  const first = group.barrier()
  await say(packFrame(frameOf({ type: 'refusal', hop: 9 })))
  await assert.rejects(first, named(0, 'message-malformed'))
  const second = group.barrier()
  await say(
    packFrame(
      frameOf({
        type: 'refusal',
        step: 1,
        hop: 0,
        payload: new TextEncoder().encode(`no-code \u001b[31mred${'x'.repeat(5000)}`),
      }),
    ),
  )
  await assert.rejects(
    second,
    (error) => error instanceof RankFailure && error.message.length < 500 && !error.message.includes('\u001b'),
  )
})

test('subgroups refuse ranks that are twice, outside, or not their own', async (t) => {
  const [rank] = open(3, t)
  for (const ranks of [[0, 0], [1, 2], [0, 3], [0, -1], []])
    assert.throws(() => rank?.group.subgroup(ranks), { code: 'usage' })
})

test('a group that is closed ends its operations and takes no more', async (t) => {
  const ranks = open(2, t)
  const waiting = assert.rejects(at(ranks, 0).group.recv(new Uint8Array(1), 1), { code: 'cancelled' })
  await at(ranks, 0).group.close()
  await waiting
  await assert.rejects(at(ranks, 0).group.barrier(), { code: 'cancelled' })
})

test('what was sent arrives before the sender closes, however long the line', async (t) => {
  // Such a line drops what is on its way when it closes, as a WebRTC connection does.
  const ranks = open(3, t, (network) => slowNetwork(network, 1e6, 40))
  const values = new Float32Array(3)
  await Promise.all([
    at(ranks, 0)
      .group.send(Float32Array.of(1, 2, 3), 2)
      .then(() => at(ranks, 0).group.close()),
    at(ranks, 2).group.recv(values, 0),
  ])
  assert.deepEqual([...values], [1, 2, 3])
  await Promise.all(ranks.map(({ group }) => group.close()))
})

test('a rank of the mesh that speaks in a group which it is not in is dropped; the group goes on', async (t) => {
  const grid = new MemoryGrid()
  const members = Array.from({ length: 3 }, () => newMemberId())
  const networks = members.map((member) => grid.join(member))
  const [first, second] = [1, 2].map((rank) => openCommunicator(networkMesh(at(networks, rank), members, rank)))
  if (first === undefined || second === undefined) throw new Error('two groups')
  t.after(() => Promise.all([first.close(), second.close()]))
  const link = await at(networks, 0).dial(at(members, 1), new AbortController().signal)
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  const pair = [first.subgroup([1, 2]), second.subgroup([1, 2])] as const
  const sum = pair[0].allReduce(Int32Array.of(1))
  const generation = fingerprint('1 1,2 0')
  for (const type of ['heartbeat', 'partial'] as const)
    await link.send(packFrame(frameOf({ type, generation: type === 'heartbeat' ? 0 : generation })))
  assert.match(await closed, /expected frames of ranks of the group/)
  assert.deepEqual(await Promise.all([sum, pair[1].allReduce(Int32Array.of(1))]), [Int32Array.of(2), Int32Array.of(2)])
})

test('times that timers cannot keep are refused', async (t) => {
  const [rank] = open(1, t)
  for (const timeoutMs of [0, -1, NaN, Infinity])
    await assert.rejects(rank?.group.barrier({ timeoutMs }) ?? Promise.resolve(), { code: 'usage' })
})

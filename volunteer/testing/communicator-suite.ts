import { startPowerSgd, squareShape } from '../src/codec/encode-power-sgd.ts'
import { type Encoding, startFeedback } from '../src/codec/encoding.ts'
import type { Communicator } from '../src/collectives/communicator.ts'
// What a group of ranks must do, as cases without a test runner. All ranks run the same case at the same time, in
// memory, in processes and in tabs. A case checks on its own rank; where ranks must hold equal bytes, they compare
// digests among themselves.
import { algorithmsOf, type Algorithm, type Collective } from '../src/collectives/moves.ts'
import { RankFailure } from '../src/reduce/rank-failure.ts'
import {
  check,
  expectedSum,
  requireEqualBytes,
  requireNear,
  requireRejection,
  requireSame,
  valuesOf,
} from './communicator-checks.ts'

export interface CommunicatorCase {
  readonly name: string
  run(group: Communicator): Promise<void>
}

/** Numbers of a vector that takes several chunks on each rank. */
const LONG = 150_001
const LENGTHS = [0, 1, 3, 1000, LONG]
/**
 * Milliseconds, for the case in which time must run out: longer than ranks that begin together are apart on a busy
 * machine.
 */
const SHORT = 1000

export const communicatorCases: readonly CommunicatorCase[] = [
  { name: 'all-reduce: every algorithm and length gives the sum, bit-identical on all ranks', run: allReduces },
  { name: 'all-reduce: sum, mean, min and max, of floats and integers', run: operations },
  { name: 'all-reduce: the input stays as it is, unless it is where the result goes', run: keepsInput },
  { name: 'all-reduce: NaN and infinity pass through', run: passesNaN },
  { name: 'all-reduce: f16, int8, top-k and PowerSGD lose nothing but what the residuals hold', run: encodings },
  { name: 'broadcast: from every root with every algorithm', run: broadcasts },
  { name: 'reduce: to every root with every algorithm', run: reduces },
  { name: 'reduce-scatter, then all-gather, is an all-reduce', run: scattersAndGathers },
  { name: 'gather and scatter undo each other', run: gathersAndScatters },
  { name: 'all-to-all transposes', run: transposes },
  { name: 'messages arrive in order, small and large, far ahead of the receiver', run: messages },
  { name: 'operations in flight at once do not mix', run: overlaps },
  { name: 'subgroups work beside the whole group', run: subgroups },
  { name: 'a barrier holds until the last rank has come', run: barriers },
  { name: 'measured links are equal on all ranks, and choose an algorithm', run: measures },
  { name: 'ranks that call different operations are told so, and can go on', run: mismatches },
  { name: 'a cancelled operation ends on all ranks, with the rank that cancelled it', run: cancels },
  { name: 'a rank that does not come is named when the time is up', run: timesOut },
]

async function allReduces(group: Communicator): Promise<void> {
  for (const algorithm of algorithmsOf('allReduce'))
    for (const length of LENGTHS) {
      const sum = await group.allReduce(valuesOf(group.rank, length), { algorithm })
      requireNear(sum, expectedSum(group.size, length), group.size, `${algorithm} of ${length}`)
      await requireEqualBytes(group, sum, `${algorithm} of ${length}`)
    }
}

async function operations(group: Communicator): Promise<void> {
  const mine = Float32Array.of(group.rank, -group.rank, 7)
  const last = group.size - 1
  const total = (group.size * last) / 2
  const floats = {
    sum: [total, -total, 7 * group.size],
    mean: [total / group.size, -total / group.size, 7],
    min: [0, -last, 7],
    max: [last, 0, 7],
  } as const
  for (const algorithm of algorithmsOf('allReduce')) {
    for (const op of ['sum', 'mean', 'min', 'max'] as const)
      requireSame(await group.allReduce(mine, { op, algorithm }), Float32Array.from(floats[op]), op)
    const integers = Int32Array.of(group.rank, 2 ** 31 - 1, -5)
    requireSame(
      await group.allReduce(integers, { algorithm }),
      Int32Array.of(total, Math.imul(group.size, 2 ** 31 - 1), -5 * group.size),
      'integers',
    )
    requireSame(
      await group.allReduce(integers, { op: 'max', algorithm }),
      Int32Array.of(last, 2 ** 31 - 1, -5),
      'integers',
    )
  }
  await requireRejection(group.allReduce(Int32Array.of(1), { op: 'mean' }), 'unsupported')
}

async function keepsInput(group: Communicator): Promise<void> {
  const input = valuesOf(group.rank, 1000)
  const sum = await group.allReduce(input)
  requireSame(input, valuesOf(group.rank, 1000), 'the input')
  await group.allReduce(input, { into: input })
  requireSame(input, sum, 'the result in place')
}

async function passesNaN(group: Communicator): Promise<void> {
  const values = new Float32Array(100)
  if (group.rank === group.size - 1) values.set([NaN, Infinity, -Infinity], 10)
  for (const algorithm of algorithmsOf('allReduce'))
    for (const op of ['sum', 'max'] as const) {
      const result = await group.allReduce(values, { op, algorithm })
      check(
        Number.isNaN(result[10]) && result[11] === Infinity && result[9] === 0 && result[13] === 0,
        `${algorithm} ${op} gave ${result.slice(9, 14).join()}`,
      )
    }
  for (const algorithm of ['ring', 'direct'] as const) {
    const half = await group.allReduce(values, { algorithm, encoding: { type: 'f16' } })
    check(
      Number.isNaN(half[10]) && half[11] === Infinity && half[9] === 0,
      `${algorithm} f16 gave ${half.slice(9, 14).join()}`,
    )
    const eight = await group.allReduce(values, { algorithm, encoding: { type: 'int8' } })
    check(Number.isNaN(eight[10]), `${algorithm} int8 hid NaN as ${eight[10]}`)
  }
}

/** Σ results = Σ inputs − Σ what stayed behind: nothing is lost, and the next step sends what this one could not. */
async function encodings(group: Communicator): Promise<void> {
  const length = 10_007
  const shape = squareShape(length, 2)
  const start = startPowerSgd(shape, length, 7)
  const next = { q: new Float32Array(start.q.length), residual: new Float32Array(length) }
  const feedback = (): { readonly feedback: ReturnType<typeof startFeedback> } => ({ feedback: startFeedback(length) })
  const tried: readonly (readonly [Encoding, readonly Algorithm[]])[] = [
    [{ type: 'f16', ...feedback() }, ['ring', 'direct']],
    [{ type: 'int8', ...feedback() }, ['ring', 'direct']],
    [{ type: 'top-k', fraction: 0.05, ...feedback() }, ['ring', 'direct']],
    [{ type: 'power-sgd', shape, state: start, next }, ['ring', 'butterfly']],
  ]
  for (const [encoding, algorithms] of tried)
    for (const algorithm of algorithms) {
      const sum = await group.allReduce(valuesOf(group.rank, length), { algorithm, encoding })
      await requireEqualBytes(group, sum, `${encoding.type} over ${algorithm}`)
      if (group.size === 1 && (encoding.type === 'f16' || encoding.type === 'int8')) continue
      const ofOthers = encoding.type === 'f32' || encoding.type === 'power-sgd' ? undefined : encoding.feedback?.next
      const residual = encoding.type === 'power-sgd' ? next.residual : ofOthers
      check(residual !== undefined && residual.some((value) => value !== 0), `${encoding.type} lost nothing`)
      const behind = await group.allReduce(residual)
      sum.forEach((value, i) => {
        sum[i] = value + (behind[i] ?? 0)
      })
      const expected = expectedSum(group.size, length)
      // One rounding of the largest number may be in every other one of its block.
      expected.magnitude.fill(expected.magnitude.reduce((most, value) => Math.max(most, value), 0))
      requireNear(sum, expected, 8 * group.size, `${encoding.type} over ${algorithm}`)
    }
  await requireRejection(
    group.allReduce(valuesOf(0, 5), { encoding: { type: 'int8' }, algorithm: 'tree' }),
    'unsupported',
  )
}

async function broadcasts(group: Communicator): Promise<void> {
  await forEachRoot(group, 'broadcast', async (root, algorithm) => {
    for (const length of LENGTHS) {
      const values = group.rank === root ? valuesOf(root, length) : new Float32Array(length)
      requireSame(
        await group.broadcast(values, { root, algorithm }),
        valuesOf(root, length),
        `${algorithm} from ${root}`,
      )
    }
    const text = Uint8Array.from({ length: 11 }, (_, i) => (group.rank === root ? 200 + i : 0))
    requireSame(
      await group.broadcast(text, { root, algorithm }),
      Uint8Array.from({ length: 11 }, (_, i) => 200 + i),
      'bytes',
    )
  })
}

async function reduces(group: Communicator): Promise<void> {
  await forEachRoot(group, 'reduce', async (root, algorithm) => {
    const sum = await group.reduce(valuesOf(group.rank, LONG), { root, algorithm })
    check((sum !== undefined) === (group.rank === root), 'the root and only the root has the sum')
    if (sum !== undefined) requireNear(sum, expectedSum(group.size, LONG), group.size, `${algorithm} to ${root}`)
  })
}

async function scattersAndGathers(group: Communicator): Promise<void> {
  for (const algorithm of ['ring', 'direct'] as const)
    for (const length of [group.size, 1000 * group.size]) {
      const part = await group.reduceScatter(valuesOf(group.rank, length), { algorithm, op: 'mean' })
      check(part.length === length / group.size, `a part of ${part.length}`)
      const whole = await group.allGather(part, { algorithm })
      requireSame(
        whole,
        await group.allReduce(valuesOf(group.rank, length), { algorithm, op: 'mean' }),
        `${algorithm} of ${length}`,
      )
    }
}

async function gathersAndScatters(group: Communicator): Promise<void> {
  for (let root = 0; root < group.size; root++) {
    const all = await group.gather(valuesOf(group.rank, 40_000), { root })
    check((all !== undefined) === (group.rank === root), 'the root and only the root gathers')
    const own = await group.scatter(new Float32Array(40_000), { root, ...(all === undefined ? {} : { values: all }) })
    requireSame(own, valuesOf(group.rank, 40_000), `through ${root}`)
  }
}

async function transposes(group: Communicator): Promise<void> {
  for (const part of [1, 50_000]) {
    const values = Int32Array.from({ length: part * group.size }, (_, i) => 1000 * group.rank + Math.floor(i / part))
    const expected = Int32Array.from({ length: part * group.size }, (_, i) => 1000 * Math.floor(i / part) + group.rank)
    requireSame(await group.allToAll(values), expected, `parts of ${part}`)
  }
  await requireRejection(group.allToAll(new Float32Array(group.size + 1)), group.size === 1 ? undefined : 'usage')
}

async function messages(group: Communicator): Promise<void> {
  await requireRejection(group.send(Uint8Array.of(1), group.rank), 'usage')
  if (group.size === 1) return
  const [next, previous] = [(group.rank + 1) % group.size, (group.rank + group.size - 1) % group.size]
  const sent = Array.from({ length: 200 }, (_, i) => group.send(valuesOf(i, i % 50 === 0 ? LONG : 10), next))
  await group.barrier()
  for (let i = 0; i < sent.length; i++)
    requireSame(
      await group.recv(new Float32Array(i % 50 === 0 ? LONG : 10), previous),
      valuesOf(i, i % 50 === 0 ? LONG : 10),
      `message ${i}`,
    )
  await Promise.all(sent)
}

async function overlaps(group: Communicator): Promise<void> {
  const lengths = [LONG, 1, 70_000, 10, 40_000]
  const sums = lengths.flatMap((length, i) =>
    (['ring', 'direct', 'recursive-doubling'] as const).map((algorithm) =>
      group.allReduce(valuesOf(group.rank + i, length), { algorithm }),
    ),
  )
  const everything = group.allGather(Int32Array.of(group.rank))
  const other = group.rank ^ 1
  const exchanged =
    other < group.size ? [group.send(valuesOf(group.rank, LONG), other), group.recv(new Float32Array(LONG), other)] : []
  requireSame(
    await everything,
    Int32Array.from({ length: group.size }, (_, i) => i),
    'the all-gather',
  )
  for (const [i, sum] of (await Promise.all(sums)).entries()) {
    const step = Math.floor(i / 3)
    requireNear(sum, expectedSum(group.size, sum.length, step), group.size, `all-reduce ${i}`)
  }
  const [, received] = await Promise.all(exchanged)
  if (received instanceof Float32Array) requireSame(received, valuesOf(other, LONG), 'the message')
}

async function subgroups(group: Communicator): Promise<void> {
  const mine = Array.from({ length: group.size }, (_, rank) => rank)
    .filter((rank) => rank % 2 === group.rank % 2)
    .reverse()
  const half = group.subgroup(mine)
  check(half.size === mine.length && mine[half.rank] === group.rank, `rank ${half.rank} of ${half.size}`)
  const [ranks, count] = await Promise.all([
    half.allGather(Int32Array.of(group.rank)),
    group.allReduce(Int32Array.of(1)),
    half.barrier(),
  ])
  requireSame(ranks, Int32Array.from(mine), 'the subgroup')
  check(count[0] === group.size, `the whole group counts ${count[0]}`)
}

async function barriers(group: Communicator): Promise<void> {
  let left = false
  const late = group.rank === 0
  const waiting = late
    ? undefined
    : group.barrier().then(() => {
        left = true
      })
  // The others' barriers cannot be over while rank 0 has not come; a message of its own is sure to be here before it
  // does.
  if (group.rank !== 0) await group.recv(new Uint8Array(1), 0)
  else for (let rank = 1; rank < group.size; rank++) await group.send(Uint8Array.of(1), rank)
  check(!left || group.size === 1, 'a rank left the barrier before all had come')
  if (group.rank !== 0) await group.send(Uint8Array.of(1), 0)
  else for (let rank = 1; rank < group.size; rank++) await group.recv(new Uint8Array(1), rank)
  if (late) await group.barrier()
  await waiting
}

async function measures(group: Communicator): Promise<void> {
  const { latencyMs, bytesPerMs } = await group.measure()
  check(latencyMs >= 0 && bytesPerMs > 0, `${latencyMs} ms, ${bytesPerMs} bytes/ms`)
  await requireEqualBytes(group, new Float32Array(Float64Array.of(latencyMs, bytesPerMs).buffer), 'the measured links')
  check(group.choose('allReduce', 1_000_000).predictedMs >= 0, 'a choice')
}

async function mismatches(group: Communicator): Promise<void> {
  if (group.size > 1)
    await requireRejection(
      group.allReduce(new Float32Array(group.rank === 0 ? 100 : 101), { algorithm: 'star' }),
      'message-unexpected',
    )
  requireSame(await group.allReduce(Int32Array.of(1)), Int32Array.of(group.size), 'the next operation')
}

async function cancels(group: Communicator): Promise<void> {
  if (group.size === 1) return
  const control = new AbortController()
  const cancelled = group.allReduce(new Float32Array(LONG), {
    algorithm: 'ring',
    ...(group.rank === 1 ? { signal: control.signal } : {}),
  })
  const waiting = cancelled.then(
    () => undefined,
    (error: unknown) => error,
  )
  if (group.rank === 1) control.abort(new Error('changed my mind'))
  const error = await waiting
  if (group.rank === 1)
    check(error instanceof Error && error.message === 'changed my mind', `cancelled with ${String(error)}`)
  else check(error instanceof RankFailure && error.rank === 1, `expected rank 1 to be named, got ${String(error)}`)
  requireSame(await group.allReduce(Int32Array.of(1)), Int32Array.of(group.size), 'the next operation')
}

async function timesOut(group: Communicator): Promise<void> {
  if (group.size === 1) return
  const last = group.size - 1
  await group.barrier()
  const waits =
    group.rank === last
      ? undefined
      : await requireRejection(
          group.allReduce(new Float32Array(10), { algorithm: 'star', timeoutMs: SHORT }),
          'reduce-timeout',
        )
  if (group.rank === 0)
    check(
      waits instanceof RankFailure && waits.rank === last,
      `expected rank ${last} to be named, got ${String(waits)}`,
    )
  // The late one comes after all others gave up, and is told.
  if (group.rank === last) for (let rank = 0; rank < last; rank++) await group.recv(new Uint8Array(1), rank)
  else await group.send(Uint8Array.of(1), last)
  if (group.rank === last)
    await requireRejection(group.allReduce(new Float32Array(10), { algorithm: 'star' }), 'reduce-timeout')
}

async function forEachRoot(
  group: Communicator,
  collective: Collective,
  run: (root: number, algorithm: Algorithm) => Promise<void>,
): Promise<void> {
  for (const algorithm of algorithmsOf(collective))
    for (let root = 0; root < group.size; root++) await run(root, algorithm)
}

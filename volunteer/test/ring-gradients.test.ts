// R3 in the member that trains: what was computed for an assignment that is over gets into no later sum. The ring is
// real; what a slow GPU or a slow download does is done by hand. Each run is compared with the same steps undisturbed.
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { mlp, parameterLayout } from '@starling-grid/model'
import { type Clock, GridError, sha256Of, trainingBlock, systemClock } from '@starling-grid/protocol'
import { renewedExecutor } from '@starling-grid/volunteer'
import { AsyncMode } from '../src/async/async-mode.ts'
import { B, BLOCK_SAMPLES, BLOCKS, type BenchMember, type BenchOptions, Gate, RingBench, until } from './ring-bench.ts'

/** A lost device is opened anew at once. */
const hasty: Clock = { ...systemClock, sleep: async () => undefined }

const SMALL = { spec: mlp({ input: [4], hidden: [3], classes: 2 }) } satisfies BenchOptions
/** of several buckets, so that pieces of a gradient leave before the rest */
const LARGE = { spec: mlp({ input: [300], hidden: [1000, 300], classes: 2 }) } satisfies BenchOptions
/** a block takes a second, as far as the members know: they compute one at a time */
const IN_PIECES = { ...SMALL, speed: BLOCK_SAMPLES } satisfies BenchOptions

const benches: RingBench[] = []
afterEach(() => {
  for (const bench of benches.splice(0)) bench.stop()
})

function benchOf(options: BenchOptions): RingBench {
  const bench = new RingBench(options)
  benches.push(bench)
  return bench
}

/** The same step with the same assignments, and no ballot in its midst. */
async function undisturbed(options: BenchOptions, weights: readonly [number, number], lent = false) {
  const bench = benchOf(options)
  bench.freeze()
  await bench.form(weights)
  if (lent) await bench.lend(1)
  bench.start()
  return { record: await bench.held(), parameters: bench.parameters }
}

/** B's part is done and waits for A's, which the test lets go when the late result of B's old work is written. */
async function contributed({ core }: BenchMember): Promise<void> {
  await until(() => core.ring?.flight?.stage === 'reducing')
}

/**
 * A busy machine cuts assignments into other pieces, which rounds otherwise; a stray gradient is a thousand times as
 * much.
 */
const ROUNDING = 1e-6

async function expectUndisturbed(bench: RingBench, wanted: Awaited<ReturnType<typeof undisturbed>>): Promise<void> {
  const { blocks, samples, targets, correct } = await bench.held()
  const { record } = wanted
  assert.deepEqual(
    { blocks, samples, targets, correct },
    { blocks: record.blocks, samples: record.samples, targets: record.targets, correct: record.correct },
  )
  const farthest = bench.parameters.reduce(
    (most, value, i) => Math.max(most, Math.abs(value - (wanted.parameters[i] ?? 0))),
    0,
  )
  assert.ok(farthest < ROUNDING, `parameters differ by ${farthest}`)
}

test('a share without blocks stays empty while the computation of an older share is still under way', async () => {
  const bench = benchOf(SMALL)
  const late = bench.b.executor.hold()
  await bench.begin([1, 1])
  await late.arrived
  const mate = bench.a.executor.hold()
  await bench.begin([1, 0])
  await contributed(bench.b)
  late.open()
  await until(() => bench.b.executor.written.length === 1)
  mate.open()
  await expectUndisturbed(bench, await undisturbed(SMALL, [1, 0]))
})

test('the next version is computed while the sum is hashed, and a ballot in between leaves nothing of it', async () => {
  const bench = benchOf(SMALL)
  const [begun, gate] = [new Gate(), new Gate()]
  const order: string[] = []
  const { b } = bench
  const prepare = b.held.prepare.bind(b.held)
  b.held.prepare = (...given) => {
    order.push('computed')
    prepare(...given)
  }
  b.hashing = async (bytes) => {
    order.push('hash begun')
    begun.open()
    await gate.pass()
    order.push('hashed')
    return sha256Of(bytes)
  }
  bench.a.hashing = async (bytes) => {
    await gate.pass() // neither holds the step
    return sha256Of(bytes)
  }
  await bench.begin([1, 1])
  await begun.pass()
  await until(() => order.length === 2)
  assert.deepEqual(order, ['hash begun', 'computed'])
  assert.equal(b.held.version?.v, 0)
  bench.freeze()
  gate.open()
  for (const member of bench.members) member.hashing = sha256Of
  await bench.form([1, 0])
  bench.start()
  await expectUndisturbed(bench, await undisturbed(SMALL, [1, 0]))
  assert.deepEqual(order, ['hash begun', 'computed', 'hashed', 'computed'])
})

/** Work for the parameter server, begun before the ring is. */
function grant(bench: RingBench, member: BenchMember): AsyncMode {
  const mode = new AsyncMode({
    encoding: 'f32',
    pullRoundBase: () => assert.fail('it makes no rounds'),
    clock: systemClock,
    self: B,
    compute: member.compute,
    batches: member.batches,
    layout: parameterLayout(SMALL.spec),
    tables: [],
    lookups: [],
    pull: async (version) => ({ version, parameters: member.held.parameters.slice() }),
    push: async () => assert.fail('the mode is over'),
    send: () => undefined,
    onActivity: () => undefined,
    onPushed: () => assert.fail('nothing was pushed'),
    onFatal: (error) => assert.fail(String(error)),
  })
  const base = member.held.version ?? assert.fail()
  void mode.granted({
    type: 'grant',
    fence: 1,
    generation: bench.generation,
    modeEpoch: 1,
    base,
    leases: [{ block: trainingBlock(0, 7), leaseEpoch: 1 }],
    deadlineMs: 1000,
  })
  return mode
}

for (const fragments of [undefined, 1, 2]) {
  const kind = fragments === undefined ? 'a ring of steps' : `a ring of local rounds in ${fragments} fragments`
  test(`a block that is computed for the parameter server gets into no sum of ${kind} that follows`, async () => {
    const options = fragments === undefined ? SMALL : { ...SMALL, fragments }
    const bench = benchOf(options)
    bench.freeze()
    await bench.form([1, 1])
    const late = bench.b.executor.hold()
    const mode = grant(bench, bench.b)
    await late.arrived
    mode.stop()
    const mate = bench.a.executor.hold()
    await bench.begin([1, 0])
    await contributed(bench.b)
    late.open()
    await until(() => bench.b.executor.written.length === 1)
    mate.open()
    await expectUndisturbed(bench, await undisturbed(options, [1, 0]))
  })
}

test('an assignment that waits for samples during a ballot adds nothing to the next one', async () => {
  const bench = benchOf(IN_PIECES)
  const first = bench.b.executor.hold()
  await bench.begin([1, 1])
  await first.arrived
  const late = bench.b.holdDownload()
  first.open()
  await late.arrived // the old share has one piece, and waits for the samples of the next
  await bench.begin([1, 1])
  const next = bench.b.holdDownload()
  await next.arrived // so has the new one
  late.open()
  next.open()
  await expectUndisturbed(bench, await undisturbed(IN_PIECES, [1, 1]))
  assert.equal(bench.b.executor.computed.length, 3)
})

test('an off-ring sum enters an assignment once, although buckets of an older one become final', async () => {
  const bench = benchOf(LARGE)
  const late = bench.b.executor.hold()
  bench.freeze()
  await bench.form([1, 1])
  await bench.lend(1)
  bench.start()
  await late.arrived
  bench.freeze()
  await bench.form([1, 1])
  await bench.lend(1)
  const fetched = bench.b.holdDownload()
  bench.start()
  fetched.open()
  await until(() => bench.b.core.ring?.flight?.sealed === true) // the off-ring member's sum is in the new assignment
  late.open()
  await expectUndisturbed(bench, await undisturbed(LARGE, [1, 1], true))
})

test('a computation that is repeated on a new device after a ballot writes into no later sum', async () => {
  const lost = new Gate()
  const opened: number[] = []
  const bench = benchOf(SMALL)
  const { executor, held } = bench.b
  const renewed = await renewedExecutor(
    async () => {
      const number = opened.push(opened.length)
      return {
        adapter: executor.adapter,
        loadParameters: (flat) => executor.loadParameters(flat),
        evaluate: (batch) => executor.evaluate(batch),
        predict: (x, samples) => executor.predict(x, samples),
        destroy: () => undefined,
        gradient: async (batch, into, early) => {
          if (number > 1) return executor.gradient(batch, into, early)
          await lost.pass()
          throw new GridError('device-lost', 'The device was lost.')
        },
      }
    },
    { say: () => undefined, clock: hasty },
  )
  Object.assign(bench.b.compute, { executor: renewed })
  await bench.begin([1, 1])
  await lost.arrived
  const mate = bench.a.executor.hold()
  await bench.begin([1, 0])
  await contributed(bench.b)
  lost.open()
  await until(() => executor.written.length === 1)
  mate.open()
  await expectUndisturbed(bench, await undisturbed(SMALL, [1, 0]))
  assert.deepEqual([opened.length, held.version?.v], [2, 1])
})

test('an older computation changes nothing of what encodings lose of the assignment after it', async () => {
  const encoded = { ...SMALL, encoding: 'int8' } satisfies BenchOptions
  const bench = benchOf(encoded)
  const late = bench.b.executor.hold()
  await bench.begin([1, 1])
  await late.arrived
  const mate = bench.a.executor.hold()
  await bench.begin([1, 0])
  await contributed(bench.b)
  late.open()
  await until(() => bench.b.executor.written.length === 1)
  mate.open()
  await expectUndisturbed(bench, await undisturbed(encoded, [1, 0]))
})

test('a computation that never ends costs its memory and changes no later step', async () => {
  const bench = benchOf(SMALL)
  const never = bench.b.executor.hold()
  await bench.begin([1, 1])
  await never.arrived
  await bench.begin([1, 0])
  await expectUndisturbed(bench, await undisturbed(SMALL, [1, 0]))
  await bench.begin(
    [1, 0],
    BLOCKS.map((_, i) => trainingBlock(0, 4 + i)),
  )
  await bench.held()
  assert.deepEqual([bench.a.said('abort'), bench.b.said('abort')], [[], []])
})

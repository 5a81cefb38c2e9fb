// The reduce that trains, with sums that travel encoded. All members have equal bytes, what is lost comes later, and
// nothing that is no encoding gets in.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mlp } from '@starling-grid/model'
import {
  type ErrorCode,
  type Exchange,
  type Frame,
  type GradientEncoding,
  GridError,
  packFrame,
  random32,
  trainingBlock,
  unpackFrame,
  versionId,
  type VersionRef,
  systemClock,
} from '@starling-grid/protocol'
import { encodeInt8, encodeSparse2, scaledF16Codec } from '@starling-grid/protocol/floats'
import { createReferenceExecutor, LocalVersion } from '@starling-grid/volunteer'
import { startFeedback, swapped, type Feedback } from '../src/codec/encoding.ts'
import { RingCodec } from '../src/codec/ring-codec.ts'
import { Compute } from '../src/compute.ts'
import { Residual } from '../src/generation/residual.ts'
import type { Batch } from '../src/graph/executor.ts'
import { leavingRuns } from '../src/reduce/exchanges.ts'
import type { Addressed } from '../src/reduce/reduce.ts'
import { RingReduce } from '../src/reduce/ring-reduce.ts'
import { StepReduces } from '../src/reduce/step-reduces.ts'

const DENSE: readonly GradientEncoding[] = ['f16', 'int8']
const WAYS = [...DENSE, 'sparse2' as const].flatMap(
  (encoding) =>
    [
      [encoding, 'ring'],
      [encoding, 'direct'],
    ] as const,
)
/**
 * largest error of one encoding, as a fraction of the largest of its numbers: half a step of 1/127, or of 11 bits, or a
 * number that does not travel
 */
const ERROR: Readonly<Record<GradientEncoding, number>> = { f32: 2 ** -24, f16: 2 ** -11, int8: 0.5 / 127, sparse2: 1 }

/** of a frame here: several to a segment */
const CHUNK_BYTES = 2048

interface Step {
  readonly encoding: GradientEncoding
  /** absent: around the ring */
  readonly exchange?: Exchange
  readonly gradients: readonly Float32Array[]
  readonly feedbacks?: readonly Feedback[]
  readonly buckets?: readonly { readonly start: number; readonly end: number }[]
  readonly random?: (below: number) => number
  /** by member and bucket: runs that leave as bytes */
  readonly encoded?: readonly (readonly (readonly Uint8Array[])[])[]
}

interface Reduced {
  readonly sums: readonly Float32Array[]
  /** that the first member sent, manifests apart */
  readonly bytes: number
}

/** One step in memory; buckets enter and frames arrive in the order that `random` chooses. */
function reduce({
  encoding,
  exchange = 'ring',
  gradients,
  feedbacks,
  buckets,
  encoded,
  random = () => 0,
}: Step): Reduced {
  const size = gradients.length
  const members = gradients.map(
    (gradient, rank) =>
      new StepReduces(
        {
          generation: 1,
          rank,
          size,
          length: gradient.length,
          encoding,
          exchange,
          chunkBytes: CHUNK_BYTES,
          ...(buckets ? { buckets } : {}),
        },
        1,
      ),
  )
  const todo: (() => void)[] = []
  let bytes = 0
  const send = (from: number, frames: readonly Addressed[]): void => {
    for (const { to, frame } of frames) {
      if (from === 0 && frame.type !== 'manifest') bytes += frame.payload.byteLength
      const arrived = unpackFrame(packFrame(frame))
      todo.push(() => send(to, members[to]?.accept(arrived, from) ?? []))
    }
  }
  for (const [i, member] of members.entries()) {
    const [gradient, feedback] = [gradients[i] ?? new Float32Array(0), feedbacks?.[i]]
    const order = buckets?.map((_, bucket) => bucket) ?? []
    todo.push(() => {
      for (const bucket of order)
        send(i, member.at(1).contributeBucket(bucket, gradient, feedback, encoded?.[i]?.[bucket]))
      send(
        i,
        member.contribute(
          1,
          gradient,
          { blocks: [trainingBlock(0, i)], samples: 1, targets: 1, lossSum: 0, correct: 0 },
          feedback,
        ),
      )
    })
  }
  while (todo.length > 0) todo.splice(random(todo.length), 1)[0]?.()
  return { sums: members.map(({ finished }) => finished?.sum ?? new Float32Array(0)), bytes }
}

/** Of unequal sizes, as assignments of fast and slow members are. */
function assignments(size: number, length: number, seed: number): Float32Array[] {
  const random = random32(seed)
  return Array.from({ length: size }, (_, member) =>
    Float32Array.from({ length }, () => (1 + 3 * member) * (random() / 2 ** 31 - 1)),
  )
}

function seeded(seed: number): (below: number) => number {
  const random = random32(seed)
  return (below) => random() % below
}

for (const [encoding, exchange] of WAYS)
  for (const size of [1, 2, 3, 5])
    test(`${encoding}, ${size} members in a ${exchange} hold equal bytes near the sum, in any order of frames`, () => {
      const length = 3001
      const gradients = assignments(size, length, size)
      const buckets = [
        { start: 1200, end: length },
        { start: 0, end: 1200 },
      ]
      const first = reduce({ encoding, exchange, gradients, buckets })
      for (let seed = 1; seed < 20; seed++)
        for (const sum of reduce({ encoding, exchange, gradients, buckets, random: seeded(seed) }).sums)
          assert.deepEqual(sum, first.sums[0])
      const largest = gradients.reduce(
        (total, gradient) => total + gradient.reduce((most, value) => Math.max(most, Math.abs(value)), 0),
        0,
      )
      first.sums[0]?.forEach((sum, i) => {
        const exact = gradients.reduce((total, gradient) => total + (gradient[i] ?? 0), 0)
        assert.ok(
          Math.abs(sum - exact) <= size * ERROR[encoding] * 1.01 * largest,
          `float ${i}: ${sum}, exactly ${exact}`,
        )
      })
    })

for (const [encoding, exchange] of WAYS)
  for (const size of [2, 3])
    test(`${encoding}, ${size} members in a ${exchange}: runs encoded before read-back are sent unchanged`, () => {
      const length = 70_001
      const buckets = [
        { start: 30_000, end: length },
        { start: 0, end: 30_000 },
      ]
      const gradients = assignments(size, length, 4)
      const [ours, elsewhere] = [gradients.map(() => startFeedback(length)), gradients.map(() => startFeedback(length))]
      const wanted = reduce({ encoding, exchange, gradients, feedbacks: ours, buckets })
      const runs = gradients.map((_, index) =>
        leavingRuns({ exchange, world: { rank: index, size }, buckets, encoding, chunkBytes: CHUNK_BYTES }),
      )
      const codec = new RingCodec(encoding)
      const encoded = runs.map((all, i) =>
        all.map((inBucket) =>
          inBucket.map(({ start, end }) =>
            codec.encode(gradients[i]?.subarray(start, end) ?? new Float32Array(0), undefined, false),
          ),
        ),
      )
      const rest = gradients.map((gradient, i) => {
        const left = gradient.slice()
        for (const { start, end } of runs[i]?.flat() ?? []) left.fill(0, start, end)
        return left
      })
      const found = reduce({ encoding, exchange, gradients: rest, feedbacks: elsewhere, buckets, encoded })
      assert.deepEqual(found, wanted)
      for (const [i, { next }] of elsewhere.entries()) {
        const kept = ours[i]?.next.slice() ?? next
        for (const { start, end } of runs[i]?.flat() ?? []) kept.fill(0, start, end)
        assert.deepEqual(next, kept, 'the loss of what was encoded elsewhere is kept elsewhere')
      }
      const floats = runs[0]?.flat().reduce((sum, { start, end }) => sum + end - start, 0) ?? 0
      assert.ok(Math.abs(floats / length - (exchange === 'ring' ? 1 : size - 1) / size) < 1e-3)
    })

test('threat 34: bytes that were encoded elsewhere and hold NaN are refused', () => {
  const member = new StepReduces({ generation: 1, rank: 0, size: 2, length: 512, encoding: 'int8' }, 1)
  const bytes = new Uint8Array(4 + 256)
  new DataView(bytes.buffer).setFloat32(0, NaN, true)
  bytes.fill(1, 4)
  assert.throws(
    () => member.at(1).contributeBucket(0, new Float32Array(512), startFeedback(512), [bytes]),
    (error) => error instanceof GridError && error.code === 'gradient-not-finite',
  )
})

test('eight bits take a quarter of the bytes, half precision the half, the largest in two bits a sixtieth', () => {
  for (const exchange of ['ring', 'direct'] as const) {
    const bytes = (encoding: GradientEncoding): number =>
      reduce({ encoding, exchange, gradients: assignments(3, 90_000, 1) }).bytes
    assert.ok(bytes('f16') < 0.51 * bytes('f32'))
    assert.ok(bytes('int8') < 0.26 * bytes('f32'))
    assert.ok(bytes('sparse2') < bytes('f32') / 60)
  }
})

for (const [encoding, exchange] of WAYS)
  test(`${encoding} in a ${exchange}: later steps send the residual, so that errors do not add up`, () => {
    const [size, length, steps] = [3, 500, 60]
    let feedbacks = Array.from({ length: size }, () => startFeedback(length))
    const [total, exact, forgetful] = [new Float64Array(length), new Float64Array(length), new Float64Array(length)]
    const gradients = assignments(size, length, 9) // the same in each step: without feedback its error is, too
    for (let step = 0; step < steps; step++) {
      reduce({ encoding, exchange, gradients, feedbacks, random: seeded(step) }).sums[0]?.forEach((sum, i) => {
        total[i] = (total[i] ?? 0) + sum
      })
      reduce({ encoding, exchange, gradients }).sums[0]?.forEach((sum, i) => {
        forgetful[i] = (forgetful[i] ?? 0) + sum
      })
      for (const gradient of gradients)
        gradient.forEach((value, i) => {
          exact[i] = (exact[i] ?? 0) + value
        })
      feedbacks = feedbacks.map(swapped)
    }
    const left = (i: number): number => feedbacks.reduce((sum, { residual }) => sum + (residual[i] ?? 0), 0)
    const worst = (sums: Float64Array): number =>
      sums.reduce((most, sum, i) => Math.max(most, Math.abs(sum - (exact[i] ?? 0))), 0)
    total.forEach((sum, i) =>
      assert.ok(Math.abs(sum + left(i) - (exact[i] ?? 0)) < 1e-3, 'what is not in the sums is in the residuals'),
    )
    const most = worst(forgetful) / (encoding === 'sparse2' ? 4 : 10)
    assert.ok(worst(total) < most, `${worst(total)} with feedback, ${worst(forgetful)} without`)
  })

test('sums that half precision alone cannot hold travel all the same, very large and very small ones', () => {
  for (const encoding of DENSE)
    for (const size of [40_000, 1e30, 3e-6, 1e-20, 1e-38]) {
      const [sum] = reduce({ encoding, gradients: assignments(2, 10, 1).map((gradient) => gradient.fill(size)) }).sums
      for (const value of sum ?? [])
        assert.ok(Math.abs(value / (2 * size) - 1) < 2 ** -10, `${encoding}: ${value} for ${2 * size}`)
    }
})

test('numbers so small that their scale has hardly any bits keep their signs', () => {
  const smallest = 2 ** -149
  for (const encoding of DENSE) {
    const [sum] = reduce({
      encoding,
      gradients: assignments(2, 2, 1).map((gradient) => {
        gradient.set([190 * smallest, -190 * smallest])
        return gradient
      }),
    }).sums
    assert.ok(sum !== undefined && (sum[0] ?? 0) > 0 && (sum[1] ?? 0) < 0, `${encoding}: ${sum?.join()}`)
  }
})

// Member 1 of 2. It may get the partial sum of segment 0 at hop 0, 600 floats in chunks of 256, 256 and 88.
const LENGTH = 1200
const chunk = new Float32Array(256).fill(1)
const int8 = (scale: number): Uint8Array => {
  const bytes = encodeInt8(chunk, { type: 'nearest' })
  new DataView(bytes.buffer).setFloat32(0, scale, true)
  return bytes
}
const f16 = (scale: number, value = 1): Uint8Array => {
  const bytes = scaledF16Codec().encode(chunk.map(() => value))
  new DataView(bytes.buffer).setFloat32(0, scale, true)
  return bytes
}
/** of all 600 floats in one frame */
const sparse2 = (small: number, large: number): Uint8Array => {
  const bytes = encodeSparse2(Float32Array.from({ length: LENGTH / 2 }, (_, i) => Math.sin(i)))
  const view = new DataView(bytes.buffer)
  view.setFloat32(0, small, true)
  view.setFloat32(4, large, true)
  return bytes
}
const badCode = encodeInt8(chunk, { type: 'nearest' }).fill(0x80, 4, 5)
const hostile: readonly [what: string, encoding: GradientEncoding, payload: Uint8Array, code: ErrorCode][] = [
  ['a scale that is NaN', 'int8', int8(Number.NaN), 'gradient-not-finite'],
  ['a scale that is infinite', 'int8', int8(Number.POSITIVE_INFINITY), 'message-malformed'],
  ['a negative scale', 'int8', int8(-1), 'message-malformed'],
  ['a scale that makes sums infinite', 'int8', int8(3.4e38), 'gradient-not-finite'],
  ['a code that no encoder writes', 'int8', badCode, 'message-malformed'],
  ['a byte too few', 'int8', int8(1).subarray(1), 'message-malformed'],
  ['a byte too many', 'int8', new Uint8Array(261), 'message-malformed'],
  ['half precision where eight bits travel', 'int8', f16(1), 'message-malformed'],
  ['whole floats where eight bits travel', 'int8', new Uint8Array(chunk.buffer), 'message-malformed'],
  ['eight bits where half precision travels', 'f16', int8(1), 'message-malformed'],
  ['eight bits where whole floats travel', 'f32', int8(1), 'message-malformed'],
  ['a scale of halves that is NaN', 'f16', f16(Number.NaN), 'message-malformed'],
  ['a scale of halves that is infinite', 'f16', f16(Number.POSITIVE_INFINITY), 'message-malformed'],
  ['a scale of halves that is zero', 'f16', f16(0), 'message-malformed'],
  ['a scale that makes halves infinite', 'f16', f16(3.4e38), 'gradient-not-finite'],
  ['an infinite half', 'f16', f16(1, Number.POSITIVE_INFINITY), 'gradient-not-finite'],
  ['a half that is NaN', 'f16', f16(1, Number.NaN), 'gradient-not-finite'],
  ['sparse chunks with magnitudes that are NaN', 'sparse2', sparse2(Number.NaN, Number.NaN), 'gradient-not-finite'],
  ['a sparse chunk with one magnitude that is NaN', 'sparse2', sparse2(1, Number.NaN), 'message-malformed'],
  ['a sparse chunk with an infinite magnitude', 'sparse2', sparse2(1, Infinity), 'message-malformed'],
  ['a sparse chunk with a negative magnitude', 'sparse2', sparse2(-1, 1), 'message-malformed'],
  ['a sparse chunk with its magnitudes in the wrong order', 'sparse2', sparse2(2, 1), 'message-malformed'],
  ['a sparse chunk of a byte less', 'sparse2', sparse2(1, 2).subarray(1), 'message-malformed'],
  ['a sparse chunk of a byte more', 'sparse2', new Uint8Array(sparse2(1, 2).length + 1), 'message-malformed'],
  ['a sparse chunk without places', 'sparse2', sparse2(1, 2).fill(0, 8), 'message-malformed'],
  ['a sparse chunk with more places than it has', 'sparse2', sparse2(1, 2).fill(0xff, 8), 'message-malformed'],
  ['eight bits where sparse chunks travel', 'sparse2', int8(1), 'message-malformed'],
  ['a sparse chunk where whole floats travel', 'f32', sparse2(1, 2), 'message-malformed'],
]

for (const [what, encoding, payload, code] of hostile)
  test(`refused without harm: ${what}`, () => {
    const options = {
      generation: 1,
      step: 1,
      length: LENGTH,
      encoding,
      chunkBytes: { int8: 260, f16: 516, f32: 1024, sparse2: 1024 }[encoding],
    }
    const [honest, victim] = [0, 1].map((index) => new RingReduce({ ...options, world: { rank: index, size: 2 } }))
    assert.ok(honest && victim)
    const manifest = { blocks: [], samples: 0, targets: 0, lossSum: 0, correct: 0 }
    const bad: Frame = { type: 'partial', generation: 1, step: 1, bucket: 0, hop: 0, offset: 0, payload }
    assert.throws(() => victim.accept(bad, 0), isCode(code))
    const gradient = assignments(1, LENGTH, 3)[0] ?? new Float32Array(0)
    let toHonest = victim.contribute(gradient, manifest)
    assert.throws(() => victim.accept(bad, 0), isCode(code))
    let toVictim = honest.contribute(gradient, manifest)
    while (toHonest.length + toVictim.length > 0)
      [toVictim, toHonest] = [
        toHonest.flatMap(({ frame }) => honest.accept(frame, 1)),
        toVictim.flatMap(({ frame }) => victim.accept(frame, 0)),
      ]
    assert.ok(victim.done)
    assert.deepEqual(victim.sum, honest.sum)
  })

test('a residual belongs to one version and is dropped with it, but survives a void step', () => {
  const version = (v: number): VersionRef => ({ v, id: versionId(String(v).repeat(64)) })
  const residual = new Residual(2)
  const step = (from: number, lost: number): number[] => {
    const feedback = residual.from(version(from), 'ring')
    feedback.next.fill(lost)
    return [...feedback.residual]
  }
  assert.deepEqual(step(0, 1), [0, 0])
  residual.swap(version(1), 'ring', true)
  assert.deepEqual(step(1, 2), [1, 1])
  assert.deepEqual(step(1, 3), [1, 1], 'a ballot made the step void')
  residual.swap(version(2), 'ring', true)
  assert.deepEqual(step(2, 4), [3, 3])
  residual.swap(version(3), 'ring', false) // a ballot came before it was applied, and the sum was fetched (R7)
  assert.deepEqual(step(3, 5), [0, 0])
  residual.swap(version(4), 'ring', true)
  assert.deepEqual([...residual.from(version(9), 'ring').residual], [0, 0], 'another version was adopted')
  assert.deepEqual(step(4, 6), [0, 0], 'and it does not come back')
  residual.swap(version(5), 'ring', true)
  assert.deepEqual(
    [...residual.from(version(5), 'round').residual],
    [0, 0],
    'a difference of parameters is no gradient',
  )
})

const SPEC = mlp({ input: [1, 8, 8], hidden: [32], classes: 10 })
const STEPS = 80
const SHARES = [8, 12, 28]

/** Ten patterns under noise: learnable, but not at once. */
function patterns(samples: number, seed: number): Batch {
  const random = random32(seed)
  const y = Int32Array.from({ length: samples }, () => random() % 10)
  const x = Float32Array.from(
    { length: samples * 64 },
    (_, i) => 0.5 * Math.sin(((y[Math.floor(i / 64)] ?? 0) + 1) * ((i % 64) + 1)) + 3 * (random() / 2 ** 32 - 0.5),
  )
  return { samples, x, y }
}

/** Trains members of unequal assignments, as members of the ring do; replicas are compared after every step. */
async function train(encoding: GradientEncoding, exchange: Exchange): Promise<number> {
  const members = SHARES.map(() => {
    const held = new LocalVersion({
      spec: SPEC,
      optimizer: { type: 'sgd', lr: 0.02, momentum: 0.9 },
      clipNorm: undefined,
    })
    held.adoptInitial({ v: 0, id: versionId('0'.repeat(64)) }, 1)
    const compute = new Compute(createReferenceExecutor(SPEC), held, systemClock)
    return { held, compute, lease: compute.buffers.lease(), residual: new Residual(held.layout.total) }
  })
  const losses: number[] = []
  for (let v = 1; v <= STEPS; v++) {
    const sums = await Promise.all(
      members.map(
        async ({ compute, lease }, i) =>
          (await compute.heldGradient(lease, patterns(SHARES[i] ?? 0, 10 * v + i)))?.sums,
      ),
    )
    const total = (of: 'targets' | 'lossSum'): number => sums.reduce((sum, each) => sum + (each?.[of] ?? 0), 0)
    const feedbacks = members.map(({ held, residual }) =>
      residual.from(held.version ?? { v: 0, id: versionId('') }, 'ring'),
    )
    const reduced = reduce({
      encoding,
      exchange,
      gradients: members.map(({ lease }) => lease.values),
      feedbacks,
      random: seeded(v),
    })
    const version = { v, id: versionId(v.toString(16).padStart(64, '0')) }
    for (const [i, { held, residual }] of members.entries()) {
      held.apply(
        {
          v,
          generation: 1,
          modeEpoch: 0,
          kind: 'ring',
          blocks: [],
          samples: total('targets'),
          targets: total('targets'),
          lossSum: total('lossSum'),
          correct: 0,
          gradDigest: '' as never,
        },
        version,
        reduced.sums[i] ?? new Float32Array(0),
      )
      residual.swap(version, 'ring', true)
    }
    for (const { held } of members) assert.deepEqual(held.encode(), members[0]?.held.encode())
    losses.push(total('lossSum') / total('targets'))
  }
  return losses.slice(-10).reduce((sum, loss) => sum + loss, 0) / 10
}

test('training with encoded sums learns as with whole ones, and replicas stay bit-identical', async () => {
  const whole = await train('f32', 'ring')
  assert.ok(whole < 1, `the loss fell from 2.3 to ${whole}`)
  // sparse2 is for differences of many steps: `npm run bench -- local` trains with it
  for (const [encoding, exchange] of WAYS.filter(([one]) => one !== 'sparse2')) {
    const loss = await train(encoding, exchange)
    assert.ok(Math.abs(loss - whole) < 0.03 * whole, `${encoding} in a ${exchange}: ${loss}, f32: ${whole}`)
  }
})

function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => error instanceof GridError && error.code === code
}

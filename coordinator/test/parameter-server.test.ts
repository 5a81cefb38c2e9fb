// The arithmetic of the parameter server against plain re-computations, in one thread and in several.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import {
  BLOCK_ELEMENTS,
  encodeVersionState,
  gradientForm,
  initialVersionState,
  nextVersion,
  parameterLayout,
  parseModelSpec,
  readPush,
  type VersionForm,
  writeGradient,
} from '@starling-grid/model'
import { digest, versionId, type VersionRef } from '@starling-grid/protocol'
import { applyUpdate, clipGlobalNorm, createOptimizerState, meanGradient } from '@starling-grid/shaders'
import { allocate, keptVersions } from '../src/parameter-server/memory.ts'
import { firstBound, NormClip } from '../src/parameter-server/norm-clip.ts'
import { ParameterServer, type ServerOptions } from '../src/parameter-server/parameter-server.ts'
import { blockSquares, keyRanges, layoutOfRange, normOf, threadsFor } from '../src/parameter-server/ranges.ts'
import { localShards, shardThreads } from '../src/parameter-server/shard-pool.ts'
import { gradientOf } from './pushed-gradient.ts'

const spec = parseModelSpec({ input: [6], layers: [{ type: 'linear', name: 'fc', out: 4 }] })
const form: VersionForm = { spec, layout: parameterLayout(spec), optimizer: { type: 'sgd', lr: 0.1, momentum: 0.9 } }
const { total } = form.layout
const TARGETS = 7
const f32 = Math.fround

const ref = (v: number): VersionRef => ({ v, id: versionId(v.toString(16).padStart(64, '0')) })
const initial = () => initialVersionState(spec, form.optimizer, 3)
const sumOf = (step: number, length = total): Float32Array =>
  Float32Array.from({ length }, (_, i) => Math.sin(step * length + i))
const dense = (sum: Float32Array) => gradientOf(sum, form.layout.trained)

async function serverAt0(options: Partial<ServerOptions> = {}): Promise<ParameterServer> {
  const server = new ParameterServer({ form, clipNorm: undefined, delayCompensation: undefined, cores: 2, ...options })
  await server.load({ version: ref(0), ...initial() })
  after(() => server.unload())
  return server
}

interface One {
  readonly damping?: number
  readonly base?: VersionRef
}

/** One push, one version. */
async function push(
  server: ParameterServer,
  v: number,
  sum: Float32Array,
  { damping = 1, base = ref(v - 1) }: One = {},
): Promise<void> {
  await server.add({ gradient: dense(sum), targets: TARGETS, base, damping })
  await server.close(ref(v), TARGETS)
}

function parametersAt(server: ParameterServer, v: number): Float32Array {
  return (server.parametersOf(ref(v).id)?.parameters ?? assert.fail(`version ${v} is not kept`)).slice()
}

test('pushes make the same bytes as the same steps of a ring member', async () => {
  const server = await serverAt0({ clipNorm: 0.5 })
  let { parameters, optimizerState } = initial()
  for (let v = 1; v <= 30; v++) {
    await push(server, v, sumOf(v))
    const mean = new Float32Array(total)
    meanGradient(sumOf(v), TARGETS, mean)
    clipGlobalNorm(mean, 0.5)
    const [next, nextState] = [new Float32Array(total), createOptimizerState(form.optimizer, total)]
    applyUpdate(form.optimizer, optimizerState, parameters, mean, next, nextState)
    ;[parameters, optimizerState] = [next, nextState]
  }
  const { version, bytes } = await server.encode()
  assert.deepEqual(version, ref(30))
  assert.equal(digest(bytes), digest(encodeVersionState({ ...form, version: ref(30), parameters, optimizerState })))
})

test('several pushes make one version: their mean over all targets, each scaled by its own damping', async () => {
  const server = await serverAt0()
  const dampings = [1, 0.5, 1 / 3]
  for (const [i, damping] of dampings.entries())
    await server.add({ gradient: dense(sumOf(i)), targets: TARGETS, base: ref(0), damping })
  await server.close(ref(1), 3 * TARGETS)
  const before = initial().parameters
  const expected = before.map((value, i) => {
    const sum = dampings.reduce((so, damping, k) => f32(so + f32(f32(damping) * (sumOf(k)[i] ?? 0))), 0)
    return f32(value - f32(f32(0.1) * f32(sum / (3 * TARGETS))))
  })
  assert.deepEqual(parametersAt(server, 1), expected)
})

test('a sum that overflows moves no parameter, and no version is made of nothing', async () => {
  const server = await serverAt0()
  await assert.rejects(server.close(ref(1), TARGETS), /internal: version 1 cannot follow 0 with 0 pushes/)
  const enormous = new Float32Array(total).fill(3e38)
  for (let i = 0; i < 2; i++)
    // bounded pushes overflow in no other way
    await server.add({ gradient: dense(enormous), targets: TARGETS, base: ref(0), damping: 3e38 })
  assert.equal(await server.close(ref(1), 2 * TARGETS), Number.POSITIVE_INFINITY)
  assert.deepEqual(parametersAt(server, 1), initial().parameters)
})

test('parameters of recent versions are there under their id, older ones are gone, and none changes', async () => {
  const server = await serverAt0()
  const seen: Float32Array[] = []
  for (let v = 1; v <= 40; v++) {
    await push(server, v, sumOf(v))
    seen[v] = parametersAt(server, v)
  }
  assert.equal(server.parametersOf(ref(20).id), undefined)
  for (let v = 30; v <= 40; v++) assert.deepEqual(parametersAt(server, v), seen[v])
  await server.unload()
  assert.equal(server.head, undefined)
})

test('one push of enormous gradients moves the parameters no further than a few usual ones', async () => {
  const moved = async (scale: number): Promise<number> => {
    const server = await serverAt0()
    for (let v = 1; v <= 20; v++) await push(server, v, sumOf(v))
    const before = parametersAt(server, 20)
    await push(
      server,
      21,
      sumOf(21).map((value) => value * scale),
    )
    return Math.hypot(...parametersAt(server, 21).map((value, i) => value - (before[i] ?? 0)))
  }
  const [usual, enormous] = [await moved(1), await moved(1e6)]
  assert.ok(enormous < 8 * usual, `${enormous} against ${usual}`)
})

test('gradients of zero at the start of a run bound no later one', async () => {
  const server = await serverAt0()
  for (let v = 1; v <= 20; v++) await push(server, v, new Float32Array(total))
  await push(server, 21, sumOf(21))
  assert.notDeepEqual(parametersAt(server, 21), parametersAt(server, 20))
})

test('a stale push counts less', async () => {
  const server = await serverAt0()
  const before = parametersAt(server, 0)
  await push(server, 1, new Float32Array(total).fill(TARGETS), { damping: 0.5 })
  parametersAt(server, 1).forEach((value, i) => assert.equal(value, f32((before[i] ?? 0) - f32(f32(0.1) * 0.5))))
})

test('delay compensation corrects a late gradient by what the parameters moved since its base', async () => {
  const strength = 0.04
  const server = await serverAt0({ delayCompensation: strength })
  const gradients = [1, 2, 3].map((v) => sumOf(v).map((value) => 3 * value))
  for (const [i, gradient] of gradients.entries()) await push(server, i + 1, gradient, { base: ref(i === 2 ? 0 : i) })
  const [base, head, after3] = [0, 2, 3].map((v) => parametersAt(server, v))
  let velocity = new Float32Array(total)
  const square = new Float64Array(total)
  let difference = 0
  for (const [step, gradient] of gradients.entries()) {
    velocity = velocity.map((v, i) => {
      const g = (gradient[i] ?? 0) / TARGETS
      square[i] = 0.95 * (square[i] ?? 0) + 0.05 * g * g
      const correction =
        step < 2 ? 0 : (strength / Math.sqrt((square[i] ?? 0) + 1e-7)) * g * g * ((head?.[i] ?? 0) - (base?.[i] ?? 0))
      if (step === 2) difference = Math.max(difference, Math.abs(correction))
      return 0.9 * v + g + correction
    })
  }
  assert.ok(difference > 1e-3, 'the correction is large enough to be seen')
  after3?.forEach((value, i) =>
    assert.ok(Math.abs(value - ((head?.[i] ?? 0) - 0.1 * (velocity[i] ?? 0))) < 1e-6, `element ${i}`),
  )
})

test('a push whose base is no longer kept cannot be compensated, and says so', async () => {
  const server = await serverAt0({ delayCompensation: 0.04 })
  for (let v = 1; v <= keptVersions(total); v++) await push(server, v, sumOf(v))
  await assert.rejects(
    server.add({ gradient: dense(sumOf(1)), targets: 1, base: ref(0), damping: 1 }),
    /no longer kept/,
  )
})

const large = parseModelSpec({
  input: [1, 28, 28],
  layers: [
    { type: 'conv2d', name: 'conv', out: 4, kernel: 5 },
    { type: 'batchnorm2d', name: 'norm' },
    { type: 'flatten' },
    { type: 'linear', name: 'fc1', out: 20 },
    { type: 'relu' },
    { type: 'linear', name: 'fc2', out: 10 },
  ],
})
const largeForm: VersionForm = {
  spec: large,
  layout: parameterLayout(large),
  optimizer: { type: 'adamw', lr: 0.01, decay: 'matrices', weightDecay: 0.1 },
}

test('ranges of whole blocks cover a vector once, and their layouts are those of the whole', () => {
  for (const [elements, count] of [
    [1, 4],
    [BLOCK_ELEMENTS, 2],
    [10 * BLOCK_ELEMENTS + 1, 3],
    [10_000_000, 7],
  ] as const) {
    const ranges = keyRanges(elements, count)
    assert.deepEqual(
      ranges.map(({ end }) => end),
      [...ranges.slice(1).map(({ start }) => start), elements],
    )
    assert.ok(ranges.every(({ start }) => start % BLOCK_ELEMENTS === 0) && ranges[0]?.start === 0)
  }
  const layouts = keyRanges(largeForm.layout.total, 5).map((range) => layoutOfRange(largeForm.layout, range))
  assert.equal(
    layouts.reduce((sum, { trained }) => sum + trained, 0),
    largeForm.layout.trained,
  )
  for (const layout of layouts)
    assert.deepEqual(
      layout.entries.map(({ offset, length }) => offset + length),
      [...layout.entries.slice(1).map(({ offset }) => offset), layout.total],
    )
})

test('small models need no thread, large ones at most one for each core beside the event loop', () => {
  assert.deepEqual(
    [threadsFor(61_706, 8), threadsFor(2_000_000, 1), threadsFor(2_000_000, 16), threadsFor(64 * 1024 * 1024, 4)],
    [0, 1, 1, 3],
  )
})

test('differences of rounds make the same bytes as rounds of a ring member, and rest the inner optimizer', async () => {
  const outer = { type: 'sgd', lr: 0.7, momentum: 0.7, nesterov: true } as const
  const rounds: VersionForm = { ...form, outer }
  const server = new ParameterServer({
    form: rounds,
    clipNorm: 1e-3, // of gradients, and no matter here
    delayCompensation: undefined,
    cores: 2,
    rounds: true,
  })
  after(() => server.unload())
  const state = initialVersionState(spec, form.optimizer, 3, outer)
  await server.load({ version: ref(0), ...state })
  let held = initialVersionState(spec, form.optimizer, 3, outer)
  for (let v = 1; v <= 3; v++) {
    await push(server, v, sumOf(v))
    const [mean, next] = [new Float32Array(total), initialVersionState(spec, form.optimizer, 3, outer)]
    meanGradient(sumOf(v), TARGETS, mean)
    nextVersion(rounds, held, mean, next, 'round')
    held = next
    assert.deepEqual(parametersAt(server, v), held.parameters)
  }
  assert.deepEqual((await server.encode()).bytes, encodeVersionState({ ...rounds, version: ref(3), ...held }))
})

test('a norm has the same bits whatever the number of shards', () => {
  const vector = sumOf(1, 9 * BLOCK_ELEMENTS + 77).map((value, i) => value * 2 ** (i % 40))
  const norms = [1, 2, 3, 9].map((count) =>
    normOf(keyRanges(vector.length, count).map(({ start, end }) => blockSquares(vector.subarray(start, end)))),
  )
  assert.deepEqual(new Set(norms).size, 1)
})

/** Three pushes, the last late, through these shards; what the memory holds then. */
async function throughShards(count: number, threads: boolean): Promise<Float32Array[]> {
  const { layout, optimizer } = largeForm
  const memory = allocate(largeForm, { versions: 12, compensated: true, shared: threads })
  const parts = keyRanges(layout.total, count).map((range) => ({ rule: { layout, optimizer }, range, memory }))
  const pool = threads ? await shardThreads(parts) : localShards(parts)
  try {
    const start = initialVersionState(large, optimizer, 1)
    memory.versions[0]?.set(start.parameters)
    await pool.run({ type: 'load', step: 0, scalars: start.optimizerState.scalars })
    for (let v = 1; v <= 3; v++) {
      memory.gradient.set(sumOf(v, layout.total))
      const norm = normOf(
        await pool.run({
          type: 'prepare',
          targets: 5,
          head: v - 1,
          base: v === 3 ? 0 : v - 1,
          strength: 0.1,
          first: true,
        }),
      )
      await pool.run({ type: 'accumulate', factor: 1 / norm, first: true })
      await pool.run({ type: 'mean', targets: 5 })
      const [answer] = await pool.run({ type: 'apply', factor: 0.5, from: v - 1, to: v })
      assert.equal(answer?.[0], v)
    }
    return [...memory.versions.slice(0, 4), ...memory.slots.flat(), memory.square ?? assert.fail()].map((vector) =>
      Float32Array.from(vector),
    )
  } finally {
    await pool.stop()
  }
}

test('shards in threads, in one thread, or one alone make the same bytes', async () => {
  const whole = await throughShards(1, false)
  assert.deepEqual(await throughShards(5, false), whole)
  assert.deepEqual(await throughShards(3, true), whole)
  const { layout, optimizer } = largeForm
  const from = initialVersionState(large, optimizer, 1)
  const [sum, next] = [sumOf(1, layout.total), initialVersionState(large, optimizer, 1)]
  const norm = normOf([blockSquares(sum.subarray(0, layout.trained))])
  const mean = sum.map((value, i) =>
    f32(i < layout.trained ? f32(f32(f32(f32(1 / norm) * value) / 5) * 0.5) : f32(value / 5)),
  )
  nextVersion({ layout, optimizer }, from, mean, next)
  assert.deepEqual(whole[1], next.parameters, 'and those of the plain update')
})

test('a thread that dies makes its pool fail, now and later', async () => {
  const { layout, optimizer } = largeForm
  const memory = allocate(largeForm, { versions: 2, compensated: false, shared: true })
  const pool = await shardThreads(
    keyRanges(layout.total, 2).map((range) => ({ rule: { layout, optimizer }, range, memory })),
  )
  await assert.rejects(pool.run({ type: 'apply', factor: 1, from: 99, to: 0 }), /no version 99/)
  await assert.rejects(pool.run({ type: 'mean', targets: 1 }), /no version 99/)
  await pool.stop()
})

test('a thread that does not answer in its time is given up, and its pool fails by name', async () => {
  const { layout, optimizer } = largeForm
  const memory = allocate(largeForm, { versions: 2, compensated: false, shared: true })
  const parts = keyRanges(layout.total, 2).map((range) => ({ rule: { layout, optimizer }, range, memory }))
  // A thread needs longer than a millisecond to start.
  await assert.rejects(
    shardThreads(parts, { answerMs: 1 }),
    /expected an answer of the parameter server's thread within 1 ms, got none/,
  )
})

test('a server with threads takes over, makes versions and writes them as one without', async () => {
  const wide = parseModelSpec({ input: [1100], layers: [{ type: 'linear', name: 'fc', out: 1000 }] })
  const wideForm: VersionForm = {
    spec: wide,
    layout: parameterLayout(wide),
    optimizer: { type: 'sgd', lr: 0.1, momentum: 0.9 },
  }
  const server = new ParameterServer({ form: wideForm, clipNorm: 0.5, delayCompensation: undefined, cores: 2 })
  after(() => server.unload())
  const start = initialVersionState(wide, wideForm.optimizer, 1)
  await server.load({ version: ref(0), ...start })
  assert.ok(server.parametersOf(ref(0).id)?.parameters.buffer instanceof SharedArrayBuffer, 'it runs in threads')
  const sum = sumOf(1, wideForm.layout.total)
  await server.add({ gradient: dense(sum), targets: 1, base: ref(0), damping: 1 })
  await server.close(ref(1), 1)
  const factor = f32(0.5 / (normOf([blockSquares(sum)]) + 1e-6))
  const next = initialVersionState(wide, wideForm.optimizer, 1)
  nextVersion(
    wideForm,
    start,
    sum.map((value) => f32(value * factor)),
    next,
  )
  assert.equal(
    digest((await server.encode()).bytes),
    digest(encodeVersionState({ ...wideForm, version: ref(1), ...next })),
  )
})

test('a version made of sparse pushes has the bytes of one made of dense ones', async () => {
  const text = parseModelSpec({
    input: [8],
    layers: [
      { type: 'embedding', name: 'wte', vocab: 50, channels: 3 },
      { type: 'linear', name: 'fc', out: 50 },
    ],
  })
  const textForm: VersionForm = { spec: text, layout: parameterLayout(text), optimizer: { type: 'adamw', lr: 0.01 } }
  const { layout, optimizer } = textForm
  const table = layout.entries.find(({ name }) => name === 'wte.weight') ?? assert.fail()
  const sum = sumOf(1, layout.total).map((value, i) =>
    i >= table.offset && i < table.offset + table.length && Math.floor((i - table.offset) / 3) % 7 !== 2 ? 0 : value,
  )
  const { body, sparse } = writeGradient(sum, layout, [table])
  assert.deepEqual(sparse, [{ name: 'wte.weight', rows: 7 }])
  const [one, other] = await Promise.all(
    [dense(sum), readPush(body, gradientForm(layout, sparse), layout.trained)].map(async (gradient) => {
      const server = new ParameterServer({ form: textForm, clipNorm: 1, delayCompensation: undefined, cores: 2 })
      await server.load({ version: ref(0), ...initialVersionState(text, optimizer, 1) })
      for (let v = 1; v <= 2; v++) {
        await server.add({ gradient, targets: 9, base: ref(v - 1), damping: 1 })
        await server.close(ref(v), 9)
      }
      return digest((await server.encode()).bytes)
    }),
  )
  assert.equal(one, other)
})

test('a clipped norm is remembered as its bound: ever larger pushes do not raise the median', () => {
  const clip = new NormClip(new Array<number>(20).fill(1))
  for (let i = 0; i < 60; i++) assert.ok(clip.factorOf(1000) * 1000 < 4 ** 4, `push ${i}`)
  assert.ok(Math.max(...clip.norms) < 4 ** 4)
  assert.ok(clip.norms.slice(20, 30).every((norm) => norm === 4))
})

test('threat 40: the first pushes are bounded, too, and zeros switch no bound off', () => {
  const first = firstBound(Float32Array.of(3, 4), 0.5)
  assert.equal(first, 100)
  assert.equal(firstBound(new Float32Array(4), 0.5), 20)
  const clip = new NormClip([], first)
  assert.ok(clip.factorOf(1e37) * 1e37 < 100.01)
  for (let i = 0; i < 60; i++) clip.factorOf(0)
  assert.deepEqual(clip.norms, [100])
  assert.ok(clip.factorOf(1e37) * 1e37 < 100.01)
})

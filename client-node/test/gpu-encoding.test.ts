// Encodings made on the GPU against those of the CPU, which the ring decodes: the same bytes, and the same losses.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { initialParameters, parameterLayout } from '@starling-grid/model'
import { createGpuExecutor } from '@starling-grid/volunteer'
import {
  type AdapterEncoding,
  AWKWARD_MODEL,
  awkwardBatch,
  type EncodeRequest,
  GpuEncoding,
  noise,
  RingCodec,
} from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

/** whole blocks and broken ones, odd lengths, a run of one */
const LENGTHS = [1000, 256, 1, 515, 3, 2048]
const TOTAL = LENGTHS.reduce((sum, length) => sum + length, 0)

async function open(encoding: AdapterEncoding, lengths: readonly number[] = LENGTHS): Promise<GpuEncoding> {
  assert.ok(gpu)
  return GpuEncoding.open({ device: gpu.device, readText: (url) => readFile(url, 'utf8') }, encoding, lengths)
}

/** The ring's own encoder, run by run; `lost` is read and then written. */
function onCpu(
  encoding: AdapterEncoding,
  values: Float32Array,
  lost: Float32Array,
  lengths: readonly number[] = LENGTHS,
): Uint8Array[] {
  const codec = new RingCodec(encoding)
  for (let i = 0; i < values.length; i++) lost[i] = (values[i] ?? 0) + (lost[i] ?? 0)
  let at = 0
  return lengths.map((length) => {
    const run = lost.subarray(at, (at += length))
    return codec.encode(run, run, false)
  })
}

/** Numbers of very different sizes, with zeros of both signs. */
function wide(seed: number): Float32Array<ArrayBuffer> {
  const sizes = noise(TOTAL, seed + 100)
  return noise(TOTAL, seed).map((value, i) => (i % 97 === 0 ? -0 : value * 2 ** Math.round(20 * (sizes[i] ?? 0))))
}

for (const encoding of ['int8', 'f16'] as const) {
  test(
    `${encoding}: a GPU gives the bytes that the CPU gives, step after step with what was lost before`,
    { skip },
    async () => {
      const onGpu = await open(encoding)
      const lost = new Float32Array(TOTAL)
      for (let step = 0; step < 5; step++) {
        const values = wide(step)
        onGpu.load(values)
        assert.deepEqual(await onGpu.encode(), onCpu(encoding, values, lost), `step ${step}`)
        onGpu.swap()
      }
      onGpu.close()
    },
  )

  test(`${encoding}: a step that is repeated gives the same bytes again`, { skip }, async () => {
    const onGpu = await open(encoding)
    onGpu.load(wide(1))
    await onGpu.encode()
    onGpu.swap()
    onGpu.load(wide(2))
    const first = await onGpu.encode()
    assert.deepEqual(await onGpu.encode(), first)
    onGpu.close()
  })

  test(
    `${encoding}: zeros, ties, and the largest and the smallest numbers that count round as on the CPU`,
    { skip },
    async () => {
      const runs = edges()
      const lengths = runs.map(({ length }) => length)
      const values = Float32Array.from(runs.flatMap((run) => [...run]))
      const onGpu = await open(encoding, lengths)
      onGpu.load(values)
      const found = await onGpu.encode()
      const wanted = onCpu(encoding, values, new Float32Array(values.length), lengths)
      for (const [i, bytes] of wanted.entries()) assert.deepEqual(found[i], bytes, `run ${i}, from ${runs[i]?.[0]}`)
      onGpu.close()
    },
  )

  for (const [name, value] of [
    ['NaN', NaN],
    ['infinity', Infinity],
    ['minus infinity', -Infinity],
  ] as const)
    test(`${encoding}: ${name} is not hidden`, { skip }, async () => {
      const onGpu = await open(encoding, [300])
      const values = noise(300, 1)
      values[270] = value
      onGpu.load(values)
      const [bytes] = await onGpu.encode()
      const seen = new Float32Array(300)
      new RingCodec(encoding).decode(bytes ?? new Uint8Array(), seen)
      assert.equal(Number.isFinite(seen[270]), false)
      onGpu.close()
    })
}

const LAYOUT = parameterLayout(AWKWARD_MODEL)
/** In the order of backward, cut in the midst of parameters; the last range has none that are encoded. */
const MIDDLE = LAYOUT.entries[Math.floor(LAYOUT.entries.length / 2)]?.offset ?? 0
const FIRST = LAYOUT.entries[1]?.offset ?? 0
const RANGES = [
  { start: MIDDLE, end: LAYOUT.total },
  { start: FIRST, end: MIDDLE },
  { start: 0, end: FIRST },
]
const RUNS = [
  [
    { start: MIDDLE + 3, end: MIDDLE + 10 },
    { start: MIDDLE + 10, end: LAYOUT.total - 5 },
  ],
  [{ start: FIRST, end: MIDDLE - 1 }],
  [],
]
const ALL_RUNS = RUNS.flat()

/** One executor through several steps: what it hands out, run by run, and the floats beside them. */
async function stepsOf(
  encoding: AdapterEncoding,
  orders: readonly { readonly samples: number; readonly residualEpoch: number }[],
  cpuMsPerMillion: number,
) {
  assert.ok(gpu)
  const executor = await createGpuExecutor({
    device: gpu.device,
    adapter: gpu.description,
    spec: AWKWARD_MODEL,
    readText: (url) => readFile(url, 'utf8'),
    maxMicroBatch: 4,
  })
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const results: { plain: Float32Array; into: Float32Array; bytes: Uint8Array[]; ranges: number[] }[] = []
  for (const { samples, residualEpoch } of orders) {
    const [plain, into] = [new Float32Array(LAYOUT.total), new Float32Array(LAYOUT.total).fill(7)]
    await executor.gradient(awkwardBatch(samples), plain)
    const [bytes, ranges]: [Uint8Array[], number[]] = [[], []]
    const encode: EncodeRequest = { encoding, runs: RUNS, residualEpoch, cpuMsPerMillion }
    await executor.gradient(awkwardBatch(samples), into, {
      ranges: RANGES,
      encode,
      onFinal: (index, encoded) => void (ranges.push(index), bytes.push(...(encoded ?? []))),
    })
    results.push({ plain, into, bytes, ranges })
  }
  executor.destroy()
  return results
}

function runsOf(vector: Float32Array): Float32Array {
  return Float32Array.from(ALL_RUNS.flatMap(({ start, end }) => [...vector.subarray(start, end)]))
}

for (const encoding of ['int8', 'f16'] as const)
  test(
    `${encoding}: an executor encodes its runs with the residual of the committed step before`,
    { skip },
    async () => {
      const lengths = ALL_RUNS.map(({ start, end }) => end - start)
      const lost = new Float32Array(lengths.reduce((sum, length) => sum + length, 0))
      // the second step is committed, the third is repeated, and before the last the member lost its version
      const orders = [
        { samples: 5, residualEpoch: 0 },
        { samples: 9, residualEpoch: 1 },
        { samples: 9, residualEpoch: 1 },
        { samples: 2, residualEpoch: 2 },
        { samples: 5, residualEpoch: 4 },
      ]
      const results = await stepsOf(encoding, orders, Number.POSITIVE_INFINITY)
      let before = lost
      for (const [i, { plain, into, bytes, ranges }] of results.entries()) {
        const isRepeated = orders[i]?.residualEpoch === orders[i - 1]?.residualEpoch
        if (i === orders.length - 1) lost.fill(0)
        const feedback = isRepeated ? before.slice() : ((before = lost.slice()), lost)
        assert.deepEqual(bytes, onCpu(encoding, runsOf(plain), feedback, lengths), `step ${i}`)
        assert.deepEqual(ranges, [0, 1, 2])
        const wanted = plain.slice()
        for (const { start, end } of ALL_RUNS) wanted.fill(0, start, end)
        assert.deepEqual(into, wanted, `floats of step ${i}`)
      }
    },
  )

test('an executor whose adapter is slower than the CPU hands out floats', { skip }, async () => {
  const [result] = await stepsOf('int8', [{ samples: 5, residualEpoch: 0 }], Number.NEGATIVE_INFINITY)
  assert.deepEqual(result?.bytes, [])
  assert.deepEqual(result?.into, result?.plain)
})

test('an adapter without memory for it leaves encoding to the CPU, and says so', { skip }, async () => {
  assert.ok(gpu)
  const { device } = gpu
  /** a buffer of an encoder was made since the last look for errors */
  let isShort = false
  const full = new Proxy(device, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property)
      if (property === 'createBuffer')
        return (descriptor: GPUBufferDescriptor) => {
          isShort ||= descriptor.label?.startsWith('encoding') === true
          return target.createBuffer(descriptor)
        }
      if (property === 'popErrorScope')
        return async () => {
          const wasShort = isShort
          isShort = false
          return (await target.popErrorScope()) ?? (wasShort ? { message: 'pretended' } : null)
        }
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const said: string[] = []
  const executor = await createGpuExecutor({
    device: full,
    adapter: gpu.description,
    spec: AWKWARD_MODEL,
    readText: (url) => readFile(url, 'utf8'),
    say: (text) => said.push(text),
  })
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const [plain, into] = [new Float32Array(LAYOUT.total), new Float32Array(LAYOUT.total)]
  const encode: EncodeRequest = {
    encoding: 'int8',
    runs: RUNS,
    residualEpoch: 0,
    cpuMsPerMillion: Number.POSITIVE_INFINITY,
  }
  await executor.gradient(awkwardBatch(3), into, {
    ranges: RANGES,
    encode,
    onFinal: (_, encoded) => assert.equal(encoded, undefined),
  })
  await executor.gradient(awkwardBatch(3), plain)
  assert.deepEqual(into, plain)
  assert.match(said.join(), /no memory to encode/)
  executor.destroy()
})

/**
 * Runs whose largest number is a power of two, so that halves and steps of 1/127 tie; and the ends of the range of f32.
 */
function edges(): Float32Array[] {
  const halves = Float32Array.from({ length: 2048 }, (_, i) => (i % 2 === 0 ? 1 : -1) * (1 + (2 * i + 1) / 4096))
  const small = Float32Array.from({ length: 512 }, (_, i) => (i + 0.5) * 2 ** -24)
  const steps = Float32Array.from({ length: 256 }, (_, i) => (i - 127.5) / 2)
  // beside a largest of 127 the scale is 1, and all are halves
  const ties = Float32Array.from({ length: 254 }, (_, i) => i - 126.5)
  const largest = 3.4028234663852886e38
  return [
    new Float32Array(300),
    halves,
    Float32Array.from([...small, 16384]),
    Float32Array.from([...small, 32767.9]),
    Float32Array.from([...steps, 127]),
    Float32Array.from([...steps, -127]),
    Float32Array.from([...ties, 127]),
    Float32Array.of(largest / 2, -largest / 4, 1e30, 1),
    Float32Array.of(2 ** -90, -(2 ** -91), 2 ** -97, 2 ** -100),
    Float32Array.of(65519, 65520, -65504, 2 ** -24, 2 ** -25, 1.5 * 2 ** -25),
    ...Array.from({ length: 64 }, (_, i) => Float32Array.from({ length: 256 }, (_, k) => (k - 128) * (1 + i / 63))),
  ]
}

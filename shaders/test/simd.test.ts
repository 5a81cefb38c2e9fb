// WebAssembly SIMD against the plain TypeScript that says what an optimizer step is: not close, but the same bits.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { adam, plainAdam, type AdamSettings, type AdamVectors } from '../src/reference/adamw.ts'
import { plainSgd, sgd, type SgdSettings } from '../src/reference/sgd.ts'
import { BLOCK } from '../src/reference/simd-module.ts'
import { simd } from '../src/reference/simd.ts'
import {
  addScaled,
  allFinite,
  asMean,
  clipGlobalNorm,
  meanGradient,
  meanOfSum,
  plainSquares,
  sumOfSquares,
} from '../src/reference/sum-of-squares.ts'

/** Whole blocks, and an end that fills neither a block nor a group of four. STARLING_FUZZ multiplies their number. */
const COUNT = Math.ceil(250 * Number(process.env['STARLING_FUZZ'] ?? 1)) * BLOCK + 7
const SIGN = 0x8000_0000
const EXPONENT_MASK = 0x7f80_0000
/** ±0, the smallest and largest denormals, the smallest normal number, 1, the largest number, infinity */
const EDGES = [0, 1, 0x007f_ffff, 0x0080_0000, 0x3f80_0000, 0x7f7f_ffff, EXPONENT_MASK]

/** Every exponent is as likely as every other, so a hundredth of the values is denormal or infinite. */
function anyFloats(seed: number, { positive = false } = {}): Float32Array<ArrayBuffer> {
  let state = seed
  const bits = Uint32Array.from({ length: COUNT }, (_, i) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    const random = (state ^ (state >>> 15) ^ (Math.imul(state, 0x2c1b_3c6d) >>> 7)) >>> 0
    const chosen = i % 97 === 0 ? (EDGES[random % EDGES.length] ?? 0) + (random & 64 ? SIGN : 0) : random
    const finite = i % 97 !== 0 && (chosen & EXPONENT_MASK) === EXPONENT_MASK ? chosen - 0x0080_0000 : chosen
    return positive ? finite & ~SIGN : finite
  })
  return new Float32Array(bits.buffer)
}

/** Values near those of a training: not everything overflows. */
function usualFloats(seed: number, { positive = false } = {}): Float32Array<ArrayBuffer> {
  const wild = new Uint32Array(anyFloats(seed, { positive }).buffer)
  // exponents −16 … 15
  return new Float32Array(
    wild.map((bits) => (bits & (SIGN | 0x007f_ffff)) | ((111 + ((bits >>> 23) % 32)) << 23)).buffer,
  )
}

function assertSameBits(ours: Float32Array, wanted: Float32Array, what: string): void {
  const [a, b] = [new Uint32Array(ours.buffer), new Uint32Array(wanted.buffer)]
  let [different, numbers] = [0, 0]
  for (let i = 0; i < b.length; i++) {
    if (!Number.isNaN(wanted[i])) numbers++
    // The bits of a NaN are not specified; that it is one is.
    if (a[i] !== b[i] && !(Number.isNaN(ours[i]) && Number.isNaN(wanted[i]))) different++
  }
  assert.equal(different, 0, `${different} of ${b.length} values of ${what} differ`)
  assert.ok(numbers > b.length / 2, `${what}: most values are numbers`)
}

test('WebAssembly SIMD runs here', () => {
  assert.notEqual(simd(), undefined)
})

const ADAM: AdamSettings = {
  lr: 1e-3,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0.01,
  decoupled: true,
  beta1Power: 0.729,
  beta2Power: 0.857,
}

for (const [name, floats] of [
  ['any', anyFloats],
  ['usual', usualFloats],
] as const) {
  for (const change of [{}, { decoupled: false }, { decoupled: false, weightDecay: 0 }])
    test(`adam ${JSON.stringify(change)} gives the bits of plain TypeScript for ${name} numbers`, () => {
      const from: AdamVectors = { parameters: floats(1), mean: floats(2), square: floats(3, { positive: true }) }
      const fresh = (): AdamVectors => ({
        parameters: new Float32Array(COUNT),
        mean: new Float32Array(COUNT),
        square: new Float32Array(COUNT),
      })
      const [ours, wanted] = [fresh(), fresh()]
      adam({ ...ADAM, ...change }, from, asMean(floats(4)), ours)
      plainAdam({ ...ADAM, ...change }, from, asMean(floats(4)), wanted)
      for (const vector of ['parameters', 'mean', 'square'] as const)
        assertSameBits(ours[vector], wanted[vector], vector)
    })

  for (const settings of everySgd())
    test(`sgd ${JSON.stringify(settings)} gives the bits of plain TypeScript for ${name} numbers`, () => {
      const moving = settings.momentum !== 0
      const [ours, wanted] = [0, 1].map(() => ({ parameters: floats(5), velocity: moving ? floats(6) : undefined }))
      assert.ok(ours && wanted)
      sgd(settings, ours, asMean(floats(7)), ours)
      plainSgd(settings, wanted, asMean(floats(7)), wanted)
      assertSameBits(ours.parameters, wanted.parameters, 'parameters')
      if (ours.velocity && wanted.velocity) assertSameBits(ours.velocity, wanted.velocity, 'velocity')
    })
}

function everySgd(): SgdSettings[] {
  return [0, 0.01].flatMap((weightDecay) => [
    { lr: 0.1, momentum: 0, nesterov: false, weightDecay },
    ...[false, true].map((nesterov) => ({ lr: 0.1, momentum: 0.9, nesterov, weightDecay })),
  ])
}

test('mean and clipping round once, as plain arithmetic does', () => {
  const sum = usualFloats(8)
  const mean = new Float32Array(COUNT)
  meanGradient(sum, 4093, mean)
  assertSameBits(
    mean,
    sum.map((value) => value / 4093),
    'mean',
  )
  const clipped = mean.slice()
  const norm = clipGlobalNorm(clipped, 1)
  const factor = Math.fround(1 / (norm + 1e-6))
  assertSameBits(
    clipped,
    mean.map((value) => value * factor),
    'clipped',
  )
})

test('an update from the sum has the bits of one from a mean and a clipped mean that were written down', () => {
  const sum = usualFloats(9)
  const written = new Float32Array(COUNT)
  meanGradient(sum, 4093, written)
  const norm = Math.sqrt(sumOfSquares(sum, 4093))
  assert.equal(norm, Math.sqrt(sumOfSquares(written)))
  assert.equal(clipGlobalNorm(written, 1), norm)
  const mean = meanOfSum(sum, 4093, { clipNorm: 1, counted: COUNT })
  assert.ok(mean.factor < 1)
  const from: AdamVectors = {
    parameters: usualFloats(1),
    mean: usualFloats(2),
    square: usualFloats(3, { positive: true }),
  }
  const fresh = (): AdamVectors => ({
    parameters: new Float32Array(COUNT),
    mean: new Float32Array(COUNT),
    square: new Float32Array(COUNT),
  })
  for (const change of [{}, { decoupled: false }]) {
    const [ours, wanted, plain] = [fresh(), fresh(), fresh()]
    adam({ ...ADAM, ...change }, from, mean, ours)
    adam({ ...ADAM, ...change }, from, asMean(written), wanted)
    plainAdam({ ...ADAM, ...change }, from, mean, plain)
    for (const vector of ['parameters', 'mean', 'square'] as const) {
      assertSameBits(ours[vector], wanted[vector], vector)
      assertSameBits(plain[vector], wanted[vector], `plain ${vector}`)
    }
  }
  for (const settings of everySgd()) {
    const [ours, wanted] = [0, 1].map(() => ({
      parameters: usualFloats(5),
      velocity: settings.momentum === 0 ? undefined : usualFloats(6),
    }))
    assert.ok(ours && wanted)
    sgd(settings, ours, mean, ours)
    plainSgd(settings, wanted, asMean(written), wanted)
    assertSameBits(ours.parameters, wanted.parameters, `parameters of ${JSON.stringify(settings)}`)
  }
})

test('the sum of squares has the bits of plain TypeScript, over numbers of any size', () => {
  for (const floats of [usualFloats, anyFloats]) {
    const values = floats(11).subarray(0, COUNT - (COUNT % 4))
    assert.ok(Number.isFinite(sumOfSquares(usualFloats(11))))
    const [a = 0, b = 0, c = 0, d = 0] = plainSquares(values, 3)
    assert.equal(sumOfSquares(values, 3), a + b + (c + d))
  }
})

test('clipping counts the elements that are trained, and leaves a norm that is not finite alone', () => {
  const sum = Float32Array.of(3, 4, 1e30)
  assert.equal(meanOfSum(sum, 1, { clipNorm: 1, counted: 2 }).factor, Math.fround(1 / (5 + 1e-6)))
  assert.equal(meanOfSum(sum, 1, { clipNorm: 10, counted: 2 }).factor, 1)
  assert.equal(meanOfSum(Float32Array.of(NaN, 1), 1, { clipNorm: 1, counted: 2 }).factor, 1)
})

test('a number that is not finite is found at every place of a long vector', () => {
  const long = anyFloats(12)
  for (let i = 0; i < COUNT; i++) if (!Number.isFinite(long[i])) long[i] = 3e38
  assert.ok(allFinite(long))
  for (const at of [0, 1, 2, 3, BLOCK - 1, BLOCK, COUNT - 8, COUNT - 4, COUNT - 1])
    for (const value of [NaN, Infinity, -Infinity]) {
      const broken = long.slice()
      broken[at] = value
      assert.equal(allFinite(broken), false, `${value} at ${at} of ${COUNT}`)
    }
})

test('more targets than an f32 can count are divided by exactly', () => {
  const out = new Float32Array(1)
  meanGradient(Float32Array.of(3), 2 ** 24 + 1, out)
  assert.equal(out[0], Math.fround(3 / (2 ** 24 + 1)))
  const { sum, targets } = meanOfSum(Float32Array.of(3), 2 ** 24 + 1, { clipNorm: undefined, counted: 1 })
  assert.equal(Math.fround((sum[0] ?? 0) / targets), out[0])
})

test('the sum of squares counts every element once, whatever the length', () => {
  for (const length of [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert.equal(sumOfSquares(Float32Array.from({ length }, (_, i) => 2 ** i)), (4 ** length - 1) / 3)
})

test('a vector that is added with a weight gives the same bits', () => {
  for (const [sum, more] of [
    [anyFloats(21), anyFloats(22)],
    [usualFloats(23), usualFloats(24)],
  ] as const)
    for (const weight of [1, Math.fround(0.7), Math.fround(1e-30)]) {
      const wanted = sum.map((value, i) => Math.fround(value + Math.fround(weight * (more[i] ?? 0))))
      const ours = sum.slice()
      addScaled(ours, more, weight)
      assertSameBits(ours, wanted, `a sum with weight ${weight}`)
    }
})

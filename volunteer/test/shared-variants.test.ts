// Kernel variants that others named, without a device: what is measured, what is taken over, what is dropped, and what
// a hostile or silent coordinator costs.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, lenet5, resnet } from '@starling-grid/model'
import {
  MAX_VARIANT_BYTES,
  MOST_SHAPE_TEXT,
  MOST_VOTED_SHAPES,
  parse,
  type Sha256,
  VariantReportSchema,
  type VariantReport,
  type VariantVotes,
} from '@starling-grid/protocol'
import { candidatesFor, PLAIN_TRAITS, variantName } from '@starling-grid/shaders'
import { tune, type TuneRequest } from '../src/gpu/autotune.ts'
import { CHECKED, measuringOrder, passesCheck } from '../src/gpu/measuring-order.ts'
import { platformOf } from '../src/gpu/platform.ts'
import { readVotes, reportOf } from '../src/gpu/shared-votes.ts'
import type { PrepareTrial } from '../src/gpu/stopwatch.ts'
import type { MeasuredVariant } from '../src/gpu/tuning-table.ts'
import { buildGraph } from '../src/graph/build.ts'
import { shapeKey } from '../src/graph/choice.ts'
import { fuseGraph } from '../src/graph/fuse.ts'
import type { SharedVariants } from '../src/graph/shared-variants.ts'
import type { ShardCache } from '../src/host.ts'

const CAPACITY = 64
const BUDGET = { budgetMs: 60_000 }
const graph = buildGraph(lenet5())
const adapter = { name: 'pretend', vendor: 'nobody', software: true, executor: 'webgpu' } as const

const { forward, backward } = fuseGraph(graph)
/** Shape → its variants, the first guess first. */
const variantsOf = new Map(
  [...forward, ...backward]
    .map((call): [string, string[]] => [
      shapeKey(call, CAPACITY),
      candidatesFor(call, CAPACITY, PLAIN_TRAITS)
        .filter(({ suits }) => suits)
        .map(variantName),
    ])
    .filter(([, variants]) => variants.length > 1),
)
const [product] = forward.filter(({ kernel }) => kernel === 'linear.forward')
assert.ok(product)
const SHAPE = shapeKey(product, CAPACITY)
const [GUESS = '', SECOND = '', THIRD = ''] = variantsOf.get(SHAPE) ?? []
/** Variants of all shapes together. */
const ALL = [...variantsOf.values()].reduce((sum, variants) => sum + variants.length, 0)

/** ms of a variant; `trials`: of SHAPE so far, this one included */
type MsOf = (variant: string, trials: number) => number

/** Trials that take so many ms; `prepared`: variants of SHAPE, in order. */
function adapterWith(msOf: MsOf) {
  const prepared: string[] = []
  const prepare: PrepareTrial = async ([call], choose) => {
    assert.ok(call)
    const variant = variantName(choose(call, CAPACITY).candidate)
    if (shapeKey(call, CAPACITY) === SHAPE) prepared.push(variant)
    return { run: async () => msOf(variant, prepared.length), destroy: () => undefined }
  }
  const request: TuneRequest = {
    graph,
    capacity: CAPACITY,
    traits: PLAIN_TRAITS,
    adapter,
    readText: async (url) => url.pathname,
    prepare,
  }
  return { prepared, request }
}

/** A coordinator that hands out these votes and keeps what it is told. */
function coordinator(votes: VariantVotes | (() => Promise<Uint8Array>)) {
  const told: VariantReport[] = []
  const asked: Sha256[] = []
  const shared: SharedVariants = async (adapterClass, report) => {
    if (report === undefined) {
      asked.push(adapterClass)
      return typeof votes === 'function' ? votes() : new TextEncoder().encode(JSON.stringify(votes))
    }
    told.push(parse(VariantReportSchema, JSON.parse(new TextDecoder().decode(report)), 'the report'))
    return new Uint8Array()
  }
  return { asked, told, shared }
}

const NONE: VariantVotes = { volunteers: 0, shapes: [] }
const votesFor = (variant: string, votes: number): VariantVotes => ({
  volunteers: votes,
  shapes: [{ shape: SHAPE, variant, votes }],
})

async function tuned(
  votes: VariantVotes | (() => Promise<Uint8Array>),
  msOf: MsOf,
  options: { readonly budgetMs?: number; readonly cache?: ShardCache } = {},
) {
  const { prepared, request } = adapterWith(msOf)
  const { told, asked, shared } = coordinator(votes)
  const said: string[] = []
  const choose = await tune({ ...BUDGET, ...options, shared, say: (text) => said.push(text) }, request)
  assert.ok(product)
  const { candidate, why } = choose(product, CAPACITY)
  return { prepared, told, asked, said: said.join('\n'), variant: variantName(candidate), why }
}

const fast = (wanted: string) => (variant: string) => (variant === wanted ? 1 : 2)

test('the first of its class measures all variants, and tells the others', async () => {
  const { said, told, variant } = await tuned(NONE, fast(SECOND))
  assert.equal(variant, SECOND)
  assert.match(said, new RegExp(`^kernels: ${ALL} variants of ${variantsOf.size} shapes measured in `))
  assert.equal(told.length, 1)
  assert.equal(told[0]?.shapes.length, variantsOf.size)
  assert.equal(told[0]?.shapes.find(({ shape }) => shape === SHAPE)?.variants[0], SECOND)
})

test('what two others named is compared with the first guess alone, taken over, and said', async () => {
  const { prepared, said, variant, why, told } = await tuned(votesFor(THIRD, 7), fast(THIRD))
  assert.deepEqual(prepared, [THIRD, GUESS])
  assert.equal(variant, THIRD)
  assert.match(why, /^taken over from 7 volunteers with this class of adapter, measured 0\.333 ms, the next 0\.667 ms$/)
  assert.match(said, /; 1 taken over from 7 volunteers with this class of adapter, checked\.$/)
  const shapes = told[0]?.shapes.map(({ shape }) => shape) ?? []
  assert.ok(shapes.length > 0 && !shapes.includes(SHAPE), 'it does not come back as a voice of its own')
})

test('a first guess that two others named is compared with the next one', async () => {
  const { prepared, variant } = await tuned(votesFor(GUESS, 2), fast(GUESS))
  assert.deepEqual(prepared, [GUESS, SECOND])
  assert.equal(variant, GUESS)
})

test('threat 44: what liars named is dropped when it is slower here, and all variants are measured', async () => {
  const slowest = (variant: string) => ({ [THIRD]: 9, [SECOND]: 1 })[variant] ?? 2
  const { prepared, said, variant, told } = await tuned(votesFor(THIRD, 2), slowest)
  assert.deepEqual(prepared.slice(0, CHECKED + 1), [THIRD, GUESS, THIRD], 'it is timed twice before it is dropped')
  assert.deepEqual(new Set(prepared), new Set(variantsOf.get(SHAPE)))
  assert.equal(variant, SECOND)
  assert.match(said, /; 1 that others named dropped, because they are slower here\.$/)
  assert.equal(told[0]?.shapes.find(({ shape }) => shape === SHAPE)?.variants[0], SECOND, 'the others are told')
})

test('one bad moment of a busy machine drops nothing', async () => {
  const busyAtFirst: MsOf = (variant, trials) => (variant === THIRD && trials === 1 ? 9 : 2)
  const { prepared, said, variant } = await tuned(votesFor(THIRD, 2), busyAtFirst)
  assert.deepEqual(prepared, [THIRD, GUESS, THIRD])
  assert.equal(variant, THIRD)
  assert.match(said, /; 1 taken over from 2 volunteers with this class of adapter, checked\.$/)
})

test('what one other named is measured first, and everything else too', async () => {
  const { prepared, said, variant } = await tuned(votesFor(THIRD, 1), fast(SECOND))
  assert.equal(prepared[0], THIRD)
  assert.equal(prepared.length, variantsOf.get(SHAPE)?.length)
  assert.equal(variant, SECOND)
  assert.match(said, /; 1 named by one volunteer alone, and not taken over\.$/)
})

test('when the time is over, a variant that others named is still measured beside the first guess', async () => {
  const largest = [...variantsOf.keys()].map((shape) => ({
    shape,
    variant: variantsOf.get(shape)?.[1] ?? '',
    votes: 3,
  }))
  const { request } = adapterWith(() => 1)
  const { shared } = coordinator({ volunteers: 3, shapes: largest })
  const seen: string[] = []
  const slow: TuneRequest = {
    ...request,
    prepare: async ([call], choose) => {
      assert.ok(call)
      seen.push(`${shapeKey(call, CAPACITY)} ${variantName(choose(call, CAPACITY).candidate)}`)
      await new Promise((resolve) => setTimeout(resolve, 60))
      return { run: async () => 1, destroy: () => undefined }
    },
  }
  const said: string[] = []
  await tune({ budgetMs: 50, shared, say: (text) => said.push(text) }, slow)
  assert.equal(seen.length, 2)
  assert.match(said.join(), new RegExp(`${variantsOf.size - 1} left with the first guess, because the time was over`))
})

test('what was taken over is kept, with how many named it, and nothing is asked for again', async () => {
  const entries = new Map<string, Uint8Array>()
  const cache: ShardCache = {
    get: async (name) => entries.get(name),
    put: async (name, bytes) => void entries.set(name, bytes),
  }
  await tuned(votesFor(THIRD, 7), fast(THIRD), { cache })
  const again = await tuned(votesFor(SECOND, 9), fast(SECOND), { cache })
  assert.deepEqual([again.asked, again.prepared, again.said], [[], [], ''])
  assert.match(again.why, /^taken over from 7 volunteers/)
  assert.equal(again.told.length, 1, 'a coordinator that forgot everything is told again')
})

const bytes = (value: unknown) => async () => new TextEncoder().encode(JSON.stringify(value))
const HOSTILE: Readonly<Record<string, () => Promise<Uint8Array>>> = {
  'no JSON': async () => new TextEncoder().encode('{'),
  'a list': bytes([]),
  'no votes': bytes({ volunteers: 1, shapes: [{ shape: SHAPE, variant: THIRD, votes: 0 }] }),
  'votes that are no number': bytes({ volunteers: 1, shapes: [{ shape: SHAPE, variant: THIRD, votes: 'many' }] }),
  'a name of a prototype': async () => new TextEncoder().encode('{"volunteers":1,"shapes":[],"__proto__":{}}'),
  'too large': async () => new Uint8Array(MAX_VARIANT_BYTES + 1).fill(0x20),
  'a refusal': () => Promise.reject(new Error('HTTP 503')),
  'an answer that never comes': () => new Promise(() => undefined),
}
for (const [what, answer] of Object.entries(HOSTILE))
  test(`${what} leaves everything as without others, and is said`, async () => {
    const { variant, said, prepared } = await tuned(answer, fast(SECOND))
    assert.equal(variant, SECOND)
    assert.equal(prepared.length, variantsOf.get(SHAPE)?.length)
    assert.match(said, /^Kernels that others measured on such an adapter did not come, all are measured here: /)
  })

test('a variant that this volunteer does not know is no vote', async () => {
  for (const variant of ['shared 1024×1024', 'constructor', 'matrix 64×64']) {
    const { prepared } = await tuned(votesFor(variant, 99), fast(SECOND))
    assert.deepEqual(prepared, variantsOf.get(SHAPE))
  }
})

test('another platform, precision or model is another class; the same one is the same', async () => {
  const { request } = adapterWith(() => 1)
  const classOf = async (change: Partial<TuneRequest>, userAgent?: string) => {
    const { asked, shared } = coordinator(NONE)
    await tune({ budgetMs: 0, shared, ...(userAgent === undefined ? {} : { userAgent }) }, { ...request, ...change })
    return asked[0]
  }
  const plain = await classOf({})
  assert.equal(await classOf({}), plain)
  const others = [
    await classOf({}, 'Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0 Safari/537.36'),
    await classOf({ precision: 'f16' }),
    await classOf({ capacity: 32 }),
    await classOf({ facts: { architecture: 'ampere' } }),
    await classOf({ readText: async () => 'another kernel text' }),
  ]
  assert.equal(new Set([plain, ...others]).size, 1 + others.length)
})

test('of what a browser says of itself, engine, major version and system are of the class', () => {
  const mac = 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)'
  const cases = [
    ['Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/142.0.7444.59 Safari/537.36', 'Chrome/142, Linux'],
    [
      'Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36 Edg/142.0',
      'Chrome/142, Windows',
    ],
    ['Mozilla/5.0 (Linux; Android 16; Pixel 9) Chrome/141.0.0.0 Mobile Safari/537.36', 'Chrome/141, Android'],
    ['Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0', 'Firefox/145, Linux'],
    [`${mac} Version/26.1 Safari/605.1.15`, 'Version/26, Mac OS'],
    ['webgpu/0.6.2', 'webgpu/0.6.2, another system'],
    ['', 'another engine, another system'],
  ] as const
  for (const [userAgent, platform] of cases) assert.equal(platformOf(userAgent), platform)
})

test('the order: the variant that was named, then the first guess; two votes confirm it, one does not', () => {
  const order = (variant: string, votes: number) => measuringOrder(['a', 'b', 'c'], (name) => name, { variant, votes })
  assert.deepEqual(order('c', 2), { order: ['c', 'a', 'b'], isNamed: true, isConfirmed: true })
  assert.deepEqual(order('c', 1), { order: ['c', 'a', 'b'], isNamed: true, isConfirmed: false })
  assert.deepEqual(order('d', 9), { order: ['a', 'b', 'c'], isNamed: false, isConfirmed: false })
})

test('a check allows for the noise of timings, and for nothing more', () => {
  const check = (ms: number) =>
    passesCheck([
      { variant: 'named', ms },
      { variant: 'guess', ms: 1 },
    ])
  assert.deepEqual([0.5, 1, 1.09, 1.2, Number.NaN].map(check), [true, true, true, false, false])
  assert.equal(passesCheck([{ variant: 'named', ms: 1 }]), false)
})

test('variants that are as good as the fastest are named behind it, so that equal machines agree', async () => {
  const alike = (variant: string) => ({ [SECOND]: 1, [THIRD]: 1.05 })[variant] ?? 2
  const { told } = await tuned(NONE, alike)
  assert.deepEqual(told[0]?.shapes.find(({ shape }) => shape === SHAPE)?.variants, [SECOND, THIRD])
})

test('a report has what was measured whole, and fits its bounds', () => {
  const whole = (variant: string): MeasuredVariant => ({
    variant,
    ms: 1,
    nextMs: 2,
    asGood: [SECOND, THIRD, 'a fourth'],
  })
  const table = new Map<string, MeasuredVariant>([
    ['whole', whole(GUESS)],
    ['cut short', { variant: GUESS, ms: 1 }],
    ['taken', { variant: GUESS, ms: 1, takenFrom: 3 }],
    ['x'.repeat(MOST_SHAPE_TEXT + 1), whole(GUESS)],
  ])
  const report = reportOf(table, table.keys())
  assert.deepEqual(JSON.parse(new TextDecoder().decode(report)), {
    shapes: [{ shape: 'whole', variants: [GUESS, SECOND, THIRD], ms: 1 }],
  })
  assert.equal(reportOf(table, ['cut short', 'taken', 'unknown']), undefined)
  const names = Array.from({ length: 200 }, (_, i) => String(i).padEnd(MOST_SHAPE_TEXT, '"'))
  const full = reportOf(new Map(names.map((shape) => [shape, whole('shared 64×64 split')])), names)
  assert.ok((full?.byteLength ?? Number.POSITIVE_INFINITY) <= MAX_VARIANT_BYTES)
  assert.equal(
    parse(VariantReportSchema, JSON.parse(new TextDecoder().decode(full)), 'it').shapes.length,
    MOST_VOTED_SHAPES,
  )
})

test('an answer of the coordinator that conforms is read whole', () => {
  const votes = readVotes(new TextEncoder().encode(JSON.stringify(votesFor(SECOND, 4))))
  assert.equal(votes.volunteers, 4)
  assert.equal(votes.ofShape.get(SHAPE)?.variant, SECOND)
})

test('the shapes of the models that people begin with fit a report', () => {
  const models = [
    lenet5(),
    resnet({ depth: 20 }),
    gpt({ blocks: 6, heads: 6, channels: 384, context: 256, vocab: 65 }),
    gpt({ blocks: 1, heads: 12, channels: 768, context: 512, vocab: 50_257 }),
  ]
  for (const traits of [PLAIN_TRAITS, { ...PLAIN_TRAITS, software: false, matrixUnits: true }])
    for (const model of models) {
      const calls = fuseGraph(buildGraph(model))
      const shapes = new Set(
        [...calls.forward, ...calls.backward]
          .filter((call) => candidatesFor(call, CAPACITY, traits).filter(({ suits }) => suits).length > 1)
          .map((call) => shapeKey(call, CAPACITY)),
      )
      const table = new Map([...shapes].map((shape) => [shape, { variant: GUESS, ms: 1, asGood: [] }]))
      const report = JSON.parse(new TextDecoder().decode(reportOf(table, shapes))) as unknown
      assert.equal(parse(VariantReportSchema, report, model.name).shapes.length, shapes.size)
    }
})

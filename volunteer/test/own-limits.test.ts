// What the owner of a machine allows: refused before anything is fetched, allocated, compiled or sent.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, lenet5, mlp, parseModelSpec } from '@starling-grid/model'
import { isGridError, jobId, memberId } from '@starling-grid/protocol'
import { PLAIN_TRAITS } from '@starling-grid/shaders'
import type { PeerLink } from '@starling-grid/volunteer'
import { DECLINED_MS, DeclinedJobs, MOST_LOSSES } from '../src/declined-jobs.ts'
import { inSubmits } from '../src/gpu/submit-pieces.ts'
import { buildGraph } from '../src/graph/build.ts'
import { MAX_PASS_WORK, MAX_WORK, type Plan, planGraph, poolBytes } from '../src/graph/plan.ts'
import type { KeptNotes } from '../src/kept-notes.ts'
import { MemoryGrid } from '../src/link/memory-link.ts'
import { meteredNetwork } from '../src/link/metered-network.ts'
import { DEFAULT_BLOCK_FLOPS, DEFAULT_LIMITS, executorBytes, requireBlockWork } from '../src/own-limits.ts'
import { UploadBudget } from '../src/upload-budget.ts'

const HUGE = { maxStorageBufferBindingSize: 2 ** 40, maxBufferSize: 2 ** 40, maxStorageBuffersPerShaderStage: 10 }
const HOUR = 3_600_000

function refusal(work: () => unknown): string {
  try {
    work()
  } catch (error) {
    if (isGridError(error) && error.code === 'own-limit') return error.message
    throw error
  }
  return 'nothing was refused'
}

const plan = (spec: Parameters<typeof buildGraph>[0], options: { maxMicroBatch: number; maxBytes?: number }): Plan =>
  planGraph(buildGraph(spec), { traits: PLAIN_TRAITS, limits: HUGE, ...options })

const deviceBytes = (made: Plan): number => poolBytes(made) + 8 * made.flat.deviceLength

test("threat 52: a job beyond the owner's memory limit is refused by its model, naming the setting", () => {
  assert.ok(executorBytes(lenet5(), DEFAULT_LIMITS) > 3.9e9)
  const why = refusal(() => executorBytes(lenet5(), { ...DEFAULT_LIMITS, memoryBytes: 1e6 }))
  assert.match(why, /limit of 1\.0 MB of memory, got one that needs at least [\d.]+ MB; raise --max-memory/)
})

test('threat 52: a job of which one step is more than the owner lets leave in an hour is refused', () => {
  const why = refusal(() => executorBytes(lenet5(), { ...DEFAULT_LIMITS, uploadBytesPerHour: 1e5 }))
  assert.match(why, /raise --max-upload/)
})

test("threat 52: a plan is reduced until it fits the owner's limit, and refused if one sample does not", () => {
  const whole = plan(lenet5(), { maxMicroBatch: 64 })
  const allowed = deviceBytes(whole) / 3
  const smaller = plan(lenet5(), { maxMicroBatch: 64, maxBytes: allowed })
  assert.ok(smaller.capacity < whole.capacity)
  assert.ok(deviceBytes(smaller) <= allowed)
  assert.match(
    refusal(() => plan(lenet5(), { maxMicroBatch: 64, maxBytes: 1000 })),
    /raise --max-memory/,
  )
})

test('threat 53: no dispatch keeps a weak GPU busy for more than a second, or the job is refused', () => {
  const wide = parseModelSpec({ input: [8192], layers: [{ type: 'linear', name: 'wide', out: 4096 }], loss: 'mse' })
  const made = plan(wide, { maxMicroBatch: 4096 })
  assert.ok(made.capacity < 4096, 'the batch is cut')
  const works = Object.values(made.parts).flatMap((passes) => passes.map(({ work }) => work))
  assert.ok(Math.max(...works) <= MAX_PASS_WORK)
  const pieces = Object.values(made.parts).flatMap((passes) => inSubmits(passes))
  const submitted = pieces.map(
    ({ passes, share }) => passes.reduce((sum, { work }) => sum + work, 0) / (share?.count ?? 1),
  )
  assert.ok(Math.max(...submitted) <= MAX_WORK)
  assert.ok(Math.max(...works) >= 2 * made.capacity * 8192 * 4096, 'multiply-adds are counted')
  const long = gpt({ blocks: 1, heads: 8, channels: 512, context: 16_384, vocab: 64 })
  assert.match(
    refusal(() => plan(long, { maxMicroBatch: 1 })),
    /expected kernels of at most 275 GFLOP, got flash_attention.backward/,
  )
})

test('threat 53: a job whose blocks take more work than the owner allows is refused by its model', () => {
  const small = mlp({ input: [28, 28], hidden: [64], classes: 10 })
  requireBlockWork(small, 4096, {})
  // forward and gradient of the weights of both layers, and the gradient of what lies between them
  const flops = 2 * 4096 * (2 * 784 * 64 + 3 * 64 * 10)
  requireBlockWork(small, 4096, { blockFlops: 1.1 * flops })
  const why = refusal(() => requireBlockWork(small, 4096, { blockFlops: 0.99 * flops }))
  assert.match(why, /expected blocks of at most 0\.\d+ TFLOP, got blocks of 4096 samples with 0\.000\d+; .*--max-work/)
  const endless = DEFAULT_BLOCK_FLOPS / (6 * 784 * 64)
  assert.match(
    refusal(() => requireBlockWork(small, 2 * endless, {})),
    /at most 10 TFLOP/,
  )
})

test('threat 53: what is submitted at once is bounded, and small models stay one submit', () => {
  const passes = (works: readonly number[]) => works.map((work) => ({ work })) as unknown as Plan['parts']['forward']
  const cut = inSubmits(passes([MAX_WORK, 1, MAX_WORK - 1, 2, MAX_WORK]))
  assert.deepEqual(
    cut.map((piece) => piece.passes.map(({ work }) => work)),
    [[MAX_WORK], [1, MAX_WORK - 1], [2], [MAX_WORK]],
  )
  assert.deepEqual(inSubmits([]), [{ passes: [] }])
  const { parts } = plan(mlp({ input: [28, 28], hidden: [64], classes: 10 }), { maxMicroBatch: 64 })
  assert.equal(inSubmits(Object.values(parts).flat()).length, 1)
})

test('threat 53: a job that loses the GPU three times in an hour is declined for hours', async () => {
  let now = 1e12
  const shelf = new Shelf()
  const [bad, slow] = [jobId('a'), jobId('b')]
  const first = new DeclinedJobs(shelf.ownNotes(), () => now)
  await first.load()
  for (let i = 0; i < MOST_LOSSES; i++) {
    now += 60_000
    assert.equal(first.lost(bad), i === MOST_LOSSES - 1)
  }
  const declinedAt = now
  for (let i = 0; i < 2 * MOST_LOSSES; i++) {
    assert.equal(first.lost(slow), false, 'two an hour may be the doing of another program')
    now += HOUR / 2
  }
  now = declinedAt + HOUR
  const second = new DeclinedJobs(shelf.ownNotes(), () => now)
  await second.load()
  assert.match(second.find(bad)?.reason ?? '', /lost the GPU 3 times/)
  now = declinedAt + DECLINED_MS
  assert.equal(second.find(bad), undefined, 'then it may try again')
})

test('threat 53: volunteers of one owner count their losses apart, and one loss of a device counts once', async () => {
  let now = 1e12
  const shelf = new Shelf()
  const [one, other] = [new DeclinedJobs(shelf.ownNotes(), () => now), new DeclinedJobs(shelf.ownNotes(), () => now)]
  const [bad, worse] = [jobId('a'), jobId('b')]
  for (let i = 0; i < MOST_LOSSES; i++) {
    now += 60_000
    one.lost(bad)
    if (i > 0) other.lost(worse)
    if (i > 1) other.lost(bad)
  }
  await shelf.settled()
  const later = new DeclinedJobs(shelf.ownNotes(), () => now)
  await later.load()
  assert.match(later.find(bad)?.reason ?? '', /lost the GPU 3 times/, 'the other volunteer wrote later')
  assert.equal(later.find(worse), undefined)
  now += 60_000
  assert.equal(later.lost(worse), true, 'the third of this hour')
})

test('threat 53: a device that volunteers of one owner lose together is lost once', async () => {
  let now = 1e12
  const shelf = new Shelf()
  const jobs = [1, 2, 3, 4].map(() => new DeclinedJobs(shelf.ownNotes(), () => now))
  for (const one of jobs) {
    one.lost(jobId('a'))
    now += 500
  }
  await shelf.settled()
  const later = new DeclinedJobs(shelf.ownNotes(), () => now)
  await later.load()
  now += 60_000
  assert.equal(later.lost(jobId('a')), false)
})

for (const damaged of ['', '{', '[1,null,{"job":3}]', '[{"job":"a","losses":"x","until":1}]'])
  test(`what is kept of declined jobs may be damaged: ${damaged || 'empty'}`, async () => {
    const jobs = new DeclinedJobs({ others: async () => [damaged], write: async () => undefined }, Date.now)
    await jobs.load()
    assert.equal(jobs.find(jobId('a')), undefined)
  })

test('threat 52: no byte beyond the upload limit leaves; the next hour has its own', async () => {
  let now = 0
  const budget = new UploadBudget(1000, () => now)
  const spent: string[] = []
  budget.onSpent = ({ message }) => spent.push(message)
  const grid = new MemoryGrid()
  const [near, far] = [memberId('a'), memberId('b')]
  const network = meteredNetwork(grid.join(near), (bytes) => budget.take(bytes))
  const arrived: number[] = []
  grid.join(far).onLink = (link: PeerLink) => {
    link.onFrame = (bytes) => arrived.push(bytes.byteLength)
  }
  const link = await network.dial(far, new AbortController().signal)
  await link.send(new Uint8Array(600))
  await assert.rejects(link.send(new Uint8Array(600)), { code: 'own-limit' })
  await link.send(new Uint8Array(400))
  assert.equal(spent.length, 1)
  assert.ok(budget.isSpent)
  now += HOUR
  await link.send(new Uint8Array(600))
  while (arrived.length < 3) await new Promise((resolve) => setTimeout(resolve, 1))
  assert.deepEqual(arrived, [600, 400, 600])
})

/** Where the volunteers of one owner keep their notes. */
class Shelf {
  readonly #texts = new Map<object, string>()
  writes = 0

  ownNotes(): KeptNotes {
    const self = {}
    return {
      others: async () => [...this.#texts].filter(([writer]) => writer !== self).map(([, text]) => text),
      write: async (text) => {
        this.writes++
        this.#texts.set(self, text)
      },
    }
  }

  /** What was handed over by now is stored, and read by those that wrote. */
  settled(): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, 0))
  }
}

async function budgetOn(shelf: Shelf, perHour: number, now: () => number): Promise<UploadBudget> {
  const budget = new UploadBudget(perHour, now, shelf.ownNotes())
  await budget.load()
  return budget
}

test('threat 52: volunteers that are started often and send little leave the limit to the others', async () => {
  const shelf = new Shelf()
  for (let i = 0; i < 200; i++) {
    const budget = await budgetOn(shelf, 1_000_000, () => 1e12)
    budget.take(100)
    await shelf.settled()
  }
  const last = await budgetOn(shelf, 1_000_000, () => 1e12)
  last.take(900_000)
})

test('threat 52: volunteers of one owner share the limit, and each next hour is common to them', async () => {
  let now = 1e12
  const shelf = new Shelf()
  const budgets = await Promise.all([1, 2, 3].map(() => budgetOn(shelf, 10_000, () => now)))
  const sendAll = async (): Promise<number> => {
    let sent = 0
    for (let open = [...budgets]; open.length > 0; await shelf.settled())
      open = open.filter((budget) => {
        try {
          budget.take(50)
        } catch {
          return false
        }
        sent += 50
        return true
      })
    return sent
  }
  const sent = await sendAll()
  assert.ok(sent <= 10_300 && sent >= 9500, `${sent} bytes of all three`)
  assert.ok(budgets.every((budget) => budget.isSpent && budget.refillMs === HOUR))
  now += HOUR
  assert.ok(budgets.every((budget) => !budget.isSpent))
  const later = await sendAll()
  assert.ok(later <= 10_300 && later >= 9500, `${later} bytes in the next hour`)
})

test('threat 52: what left in the present hour counts after a restart, whenever the process ended', async () => {
  let now = 1e12
  const shelf = new Shelf()
  const after = (): Promise<UploadBudget> => budgetOn(shelf, 10_000, () => now)
  const first = await after()
  for (let i = 0; i < 400; i++) first.take(10)
  await shelf.settled()
  assert.ok(shelf.writes <= 50, `${shelf.writes} writes`)
  now += HOUR / 2
  const second = await after()
  assert.throws(() => second.take(6001), { code: 'own-limit' })
  assert.ok(second.isSpent)
  assert.equal(second.refillMs, HOUR / 2)
  second.take(5800)
  await shelf.settled()
  now += HOUR / 2
  const third = await after()
  third.take(10_000)
  await shelf.settled()
  now -= HOUR + 1
  ;(await after()).take(10_000)
})

for (const damaged of ['', '{', '[]', '{"since":"x","bytes":1}', '{"since":1,"bytes":-1}'])
  test(`what is kept of sent bytes may be damaged: ${damaged || 'empty'}`, async () => {
    const budget = new UploadBudget(100, Date.now, { others: async () => [damaged], write: () => Promise.reject() })
    await budget.load()
    budget.take(100)
    assert.throws(() => budget.take(1), { code: 'own-limit' })
  })

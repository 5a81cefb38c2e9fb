// Who gets volunteers: what the scheduler promises, on its own.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type JobId, jobId, type MemberId } from '@starling-grid/protocol'
import fc from 'fast-check'
import {
  fits,
  gainOfOneMore,
  inOrder,
  type Lender,
  type JobMove,
  schedule,
  type SharingJob,
  speedWith,
  STAY_MS,
} from '../src/jobs/schedule.ts'

const LONG_AGO = 0
const NOW = 10 * STAY_MS

function job(id: string, change: Partial<SharingJob> = {}): SharingJob {
  return {
    id: jobId(id),
    priority: 0,
    min: 1,
    max: Number.POSITIVE_INFINITY,
    realGpu: false,
    f16: false,
    submittedAt: 0,
    isRunning: false,
    isReforming: false,
    speeds: new Map(),
    ...change,
  }
}

function lender(id: string, of?: string, change: Partial<Lender> = {}): Lender {
  const present = of === undefined ? undefined : jobId(of)
  return {
    id: id as MemberId,
    job: present,
    since: LONG_AGO,
    chosen: undefined,
    declines: new Set(),
    realGpu: undefined,
    f16: undefined,
    ...change,
  }
}

function lenders(count: number, of?: string, prefix = of ?? 'idle'): Lender[] {
  return Array.from({ length: count }, (_, i) => lender(`${prefix}-${String(i).padStart(3, '0')}`, of))
}

function moved(all: readonly Lender[], moves: readonly JobMove[], now = NOW): Lender[] {
  const to = new Map(moves.map((move) => [move.volunteer, move.to]))
  return all.map((one) => (to.has(one.id) ? { ...one, job: to.get(one.id), since: now } : one))
}

function crewOf(all: readonly Lender[], id: string): number {
  return all.filter((one) => one.job === jobId(id)).length
}

/** Jobs as they are once the moves were made: what has its minimum trains. */
function begun(jobs: readonly SharingJob[], all: readonly Lender[]): SharingJob[] {
  return jobs.map((one) => ({ ...one, isRunning: one.isRunning || crewOf(all, one.id) >= one.min }))
}

test("EDL's example: of ten volunteers five work, and a job that wants six starts with five at once and grows", () => {
  const busy = job('busy', { min: 5, max: 5, isRunning: true })
  const wantsSix = job('wants-six', { max: 6, submittedAt: 1 })
  const ten = [...lenders(5, 'busy'), ...lenders(5)]
  const started = moved(ten, schedule([busy, wantsSix], ten, NOW))
  assert.equal(crewOf(started, 'wants-six'), 5, 'it starts with the five that are free')
  assert.equal(crewOf(started, 'busy'), 5, 'the running job keeps its own')
  const running = { ...wantsSix, isRunning: true }
  assert.deepEqual(schedule([busy, running], started, NOW), [], 'and so it stays')
  const grown = moved(started, schedule([running], started, NOW)) // the busy job is over
  assert.equal(crewOf(grown, 'wants-six'), 6, 'it grows to what it wants, and no further')
})

test('a job of higher priority gets its minimum first when there are not enough for both', () => {
  const jobs = [job('low', { min: 3 }), job('high', { min: 3, priority: 5, submittedAt: 9 })]
  const placed = moved(lenders(4), schedule(jobs, lenders(4), NOW))
  assert.ok(crewOf(placed, 'high') >= 3)
  assert.equal(crewOf(placed, 'low'), 0)
})

test('of jobs of the same priority the one that waits longest starts first', () => {
  const jobs = [job('second', { min: 2, submittedAt: 2 }), job('first', { min: 2, submittedAt: 1 })]
  const placed = moved(lenders(3), schedule(jobs, lenders(3), NOW))
  assert.ok(crewOf(placed, 'first') >= 2)
})

test('a job of a higher priority takes growth from a running job, and never its minimum', () => {
  const running = job('running', { min: 2, isRunning: true })
  const all = lenders(4, 'running')
  const twoWanted = moved(all, schedule([running, job('urgent', { min: 2, priority: 9 })], all, NOW))
  assert.equal(crewOf(twoWanted, 'urgent'), 2)
  const threeWanted = schedule([running, job('urgent', { min: 3, priority: 9 })], all, NOW)
  assert.deepEqual(threeWanted, [], 'it waits: three would leave the other below its minimum')
})

test('growth is divided by priority: of six volunteers four go to the job that weighs twice as much', () => {
  const jobs = [job('low'), job('high', { priority: 1, submittedAt: 1 })]
  const shares = [3, 6].map((count) => moved(lenders(count), schedule(jobs, lenders(count), NOW)))
  assert.deepEqual(
    shares.map((placed) => [crewOf(placed, 'high'), crewOf(placed, 'low')]),
    [
      [2, 1],
      [4, 2],
    ],
  )
})

test('a volunteer that finds a job full goes to the next one', () => {
  const jobs = [job('first', { priority: 9, max: 1 }), job('next')]
  const placed = moved(lenders(3), schedule(jobs, lenders(3), NOW))
  assert.deepEqual([crewOf(placed, 'first'), crewOf(placed, 'next')], [1, 2])
})

test('growth goes where a measured volunteer more helps most', () => {
  const flat = job('flat', {
    isRunning: true,
    speeds: new Map([
      [1, 100],
      [2, 101],
      [3, 101],
    ]),
  })
  const steep = job('steep', {
    isRunning: true,
    submittedAt: 1,
    speeds: new Map([
      [1, 10],
      [2, 20],
    ]),
  })
  const all = [...lenders(2, 'flat'), ...lenders(2, 'steep')]
  const placed = moved(all, schedule([flat, steep], all, NOW))
  assert.deepEqual([crewOf(placed, 'flat'), crewOf(placed, 'steep')], [1, 3])
})

test('a volunteer that came a moment ago is not moved for growth, and one that came for long is', () => {
  const flat = job('flat', {
    isRunning: true,
    speeds: new Map([
      [1, 100],
      [2, 101],
    ]),
  })
  const steep = job('steep', { isRunning: true, submittedAt: 1 })
  const fresh = [...lenders(2, 'flat').map((one) => ({ ...one, since: NOW - STAY_MS + 1 })), ...lenders(1, 'steep')]
  assert.deepEqual(schedule([flat, steep], fresh, NOW), [])
  assert.equal(schedule([flat, steep], fresh, NOW + STAY_MS).length, 1)
})

test('a gain that does not pay for the move moves no volunteer', () => {
  const speeds = new Map([
    [1, 100],
    [2, 150],
    [3, 199],
  ])
  const a = job('a', { isRunning: true, speeds: new Map([...speeds, [4, 200]]) })
  const b = job('b', {
    isRunning: true,
    submittedAt: 1,
    speeds: new Map([
      [1, 100],
      [2, 134],
    ]),
  })
  const all = [...lenders(3, 'a'), ...lenders(1, 'b')]
  assert.ok(gainOfOneMore(b, 1) > gainOfOneMore(a, 2), 'it would be a gain')
  assert.deepEqual(schedule([a, b], all, NOW), [])
})

test('no volunteer leaves a job whose members agree on a ring', () => {
  const running = job('running', { isRunning: true, isReforming: true })
  const all = lenders(4, 'running')
  const jobs = [running, job('urgent', { priority: 9 })]
  assert.deepEqual(schedule(jobs, all, NOW), [])
  assert.equal(
    schedule([{ ...running, isReforming: false }, job('urgent', { priority: 9 })], all, NOW).length > 0,
    true,
  )
})

test('a job that waits for others to end is not overtaken by later ones that need what it waits for', () => {
  const running = job('running', { min: 3, max: 3, isRunning: true })
  const big = job('big', { min: 4, submittedAt: 1 })
  const small = job('small', { submittedAt: 2 })
  const all = [...lenders(3, 'running'), ...lenders(2)]
  const waiting = moved(all, schedule([running, big, small], all, NOW))
  assert.equal(crewOf(waiting, 'small'), 0, 'two are kept for the job that came first')
  const after = moved(waiting, schedule([big, small], waiting, NOW))
  assert.ok(crewOf(after, 'big') >= 4)
})

test('a job that the volunteers could never start does not keep them from others', () => {
  const jobs = [job('huge', { min: 50, priority: 9 }), job('small', { min: 2 })]
  const placed = moved(lenders(3), schedule(jobs, lenders(3), NOW))
  assert.equal(crewOf(placed, 'small'), 3)
  const running = job('running', { isRunning: true })
  const all = lenders(3, 'running')
  const shared = moved(all, schedule([running, ...jobs], all, NOW))
  assert.equal(crewOf(shared, 'small'), 2, 'nor what running jobs can spare')
})

test('volunteers that no job can use now prepare for the first that waits', () => {
  const placed = moved(lenders(2), schedule([job('later', { min: 3 })], lenders(2), NOW))
  assert.equal(crewOf(placed, 'later'), 2)
})

test('a volunteer without a GPU never joins a job that requires one, and leaves the others for it', () => {
  const jobs = [job('any', { priority: 3 }), job('gpu', { realGpu: true, min: 1, max: 1 })]
  const all = [lender('a', undefined, { realGpu: true }), lender('b', undefined, { realGpu: false })]
  const placed = moved(all, schedule(jobs, all, NOW))
  assert.deepEqual(
    placed.map((one) => one.job),
    [jobId('gpu'), jobId('any')],
  )
})

test('a volunteer whose adapter lacks shader-f16 never joins a job that requires it, and one unknown may', () => {
  const jobs = [job('any', { priority: 3 }), job('half', { f16: true, min: 1, max: 1 })]
  const all = [lender('a', undefined, { f16: false }), lender('b', undefined, { f16: undefined })]
  const placed = moved(all, schedule(jobs, all, NOW))
  assert.deepEqual(
    placed.map((one) => one.job),
    [jobId('any'), jobId('half')],
  )
  const sent = schedule([job('half', { f16: true, isRunning: true })], [lender('a', 'half', { f16: false })], NOW)
  assert.deepEqual(sent, [], 'it leaves by itself; nothing else has work for it')
})

test('a volunteer goes to the job that its owner chose, and to no other while that one has no place', () => {
  const jobs = [job('first', { priority: 9 }), job('chosen', { max: 1 })]
  const all = ['a', 'b'].map((id) => lender(id, undefined, { chosen: jobId('chosen') }))
  const placed = moved(all, schedule(jobs, all, NOW))
  assert.deepEqual(
    placed.map((one) => one.job),
    [jobId('chosen'), undefined],
  )
})

test('a volunteer that declined its job goes to another one', () => {
  const jobs = [job('heavy', { isRunning: true, min: 2 }), job('light', { submittedAt: 1 })]
  const all = [lender('a', 'heavy'), lender('b', 'heavy', { declines: new Set([jobId('heavy')]) })]
  assert.deepEqual(
    schedule(jobs, all, NOW).map(({ volunteer, to }) => [volunteer, to]),
    [['b', jobId('light')]],
  )
})

test('speeds that were not measured follow from those that were, and never fall', () => {
  assert.equal(speedWith(new Map(), 4), 4)
  assert.equal(speedWith(new Map([[2, 100]]), 4), 200)
  assert.equal(speedWith(new Map([[4, 100]]), 2), 50)
  assert.equal(
    speedWith(
      new Map([
        [1, 100],
        [2, 120],
      ]),
      4,
    ),
    160,
    'by the slope of the nearest two',
  )
  assert.equal(
    speedWith(
      new Map([
        [1, 100],
        [2, 90],
      ]),
      3,
    ),
    90,
  )
})

// ---- what holds for all jobs and volunteers ----

const NAMES = ['a', 'b', 'c', 'd'] as const
const speedsOf = fc.array(fc.tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 500 })), { maxLength: 4 })
const jobOf = (id: string): fc.Arbitrary<SharingJob> =>
  fc
    .record({
      priority: fc.integer({ min: -2, max: 3 }),
      min: fc.integer({ min: 1, max: 4 }),
      more: fc.option(fc.integer({ min: 0, max: 4 })),
      realGpu: fc.boolean(),
      f16: fc.boolean(),
      submittedAt: fc.integer({ min: 0, max: 3 }),
      isReforming: fc.boolean(),
      speeds: speedsOf.map((pairs) => new Map(pairs)),
    })
    .map(({ more, ...drawn }) =>
      job(id, { ...drawn, max: more === null ? Number.POSITIVE_INFINITY : drawn.min + more }),
    )

const lendersOf = fc.array(
  fc.record({
    realGpu: fc.constantFrom(true, false, undefined),
    f16: fc.constantFrom(true, false, undefined),
    since: fc.integer({ min: 0, max: NOW }),
    chosen: fc.option(fc.constantFrom(...NAMES), { freq: 6, nil: undefined }),
    declines: fc.subarray([...NAMES], { maxLength: 1 }),
  }),
  { maxLength: 14 },
)

interface Setting {
  readonly jobs: readonly SharingJob[]
  readonly all: readonly Lender[]
}

/** Jobs and volunteers as the scheduler itself left them, after some joined, left, and asked for something else. */
const settings: fc.Arbitrary<Setting> = fc
  .record({
    jobs: fc.subarray([...NAMES], { minLength: 1 }).chain((ids) => fc.tuple(...ids.map(jobOf))),
    drawn: lendersOf,
    begunWith: fc.nat(14),
    gone: fc.nat(3),
    first: fc.nat(4),
  })
  .map(({ jobs, drawn, begunWith, gone, first }) => {
    const everyone = drawn.map(({ chosen, declines, ...one }, i) =>
      lender(`v-${String(i).padStart(2, '0')}`, undefined, {
        ...one,
        chosen: chosen === undefined ? undefined : jobId(chosen),
        declines: new Set(declines.map(jobId)),
      }),
    )
    const early = everyone.slice(0, begunWith)
    const calm = jobs.slice(0, first + 1).map((one) => ({ ...one, isReforming: false }))
    const seated = moved(early, schedule(calm, early, NOW), LONG_AGO)
    const trained = new Map(begun(calm, seated).map((one) => [one.id, one.isRunning]))
    const all = [...seated.slice(gone), ...everyone.slice(begunWith)]
    return { jobs: jobs.map((one) => ({ ...one, isRunning: trained.get(one.id) ?? false })), all }
  })

const SEARCH = { numRuns: 1500 }
/** Some moves wait for others, as a place that is still taken. */
const MOST_LOOKS = 8

function holds(promise: (setting: Setting, moves: readonly JobMove[]) => void): void {
  fc.assert(
    fc.property(settings, (setting) => promise(setting, schedule(setting.jobs, setting.all, NOW))),
    SEARCH,
  )
}

test('no running job is brought below its minimum, and no job above its maximum', () => {
  holds(({ jobs, all }, moves) => {
    const after = moved(all, moves)
    for (const { id, min, max, isRunning } of jobs) {
      const [had, has] = [crewOf(all, id), crewOf(after, id)]
      assert.ok(has <= max, `${id} has ${has} of at most ${max}`)
      if (isRunning) assert.ok(has >= Math.min(had, min), `${id} had ${had}, has ${has}, and needs ${min}`)
    }
  })
})

test('every move has a volunteer of its own that may take the job, a reason, and leads elsewhere', () => {
  holds(({ jobs, all }, moves) => {
    assert.equal(new Set(moves.map(({ volunteer }) => volunteer)).size, moves.length)
    for (const { volunteer, from, to, reason } of moves) {
      const one = all.find(({ id }) => id === volunteer)
      const wanted = jobs.find(({ id }) => id === to)
      assert.ok(one !== undefined && wanted !== undefined && fits(wanted, one))
      assert.equal(from, one.job)
      assert.notEqual(from, to)
      assert.match(reason, /^\w.*\w$/)
    }
  })
})

test('when nothing changes the moves come to an end, also where no volunteer has to stay', () => {
  holds(({ jobs, all }) => {
    let here: readonly Lender[] = all
    let present: readonly SharingJob[] = jobs.map((one) => ({ ...one, isReforming: false }))
    for (let look = 0; look < MOST_LOOKS; look++) {
      const moves = schedule(present, here, NOW)
      if (look > 0 && moves.length === 0) return
      here = moved(here, moves, LONG_AGO)
      present = begun(present, here)
    }
    assert.fail(`volunteers still move after ${MOST_LOOKS} looks`)
  })
})

test('the order in which jobs and volunteers are named changes nothing', () => {
  holds(({ jobs, all }, moves) => {
    const byId = (a: JobMove, b: JobMove): number => (a.volunteer < b.volunteer ? -1 : 1)
    assert.deepEqual(schedule(jobs.toReversed(), all.toReversed(), NOW).sort(byId), [...moves].sort(byId))
  })
})

test('under scarcity no job starts before one of a higher priority that could use the same volunteers', () => {
  holds(({ jobs: drawn, all }) => {
    const jobs = drawn.map((one) => ({ ...one, isReforming: false }))
    const after = moved(all, schedule(jobs, all, NOW))
    const starts = jobs.filter(
      (one) => !one.isRunning && crewOf(all, one.id) < one.min && crewOf(after, one.id) >= one.min,
    )
    for (const low of starts)
      for (const high of jobs.filter((one) => inOrder(one, low) < 0 && !one.isRunning)) {
        const fitting = after.filter((one) => fits(high, one))
        const others = after.filter((one) => one.job === low.id && !fits(high, one))
        if (others.length >= low.min) continue // it starts with volunteers that the other has no use for
        const own = fitting.filter((one) => one.job === high.id || one.job === low.id || one.job === undefined)
        assert.ok(
          crewOf(after, high.id) >= high.min || own.length < high.min || fitting.length < high.min,
          `${low.id} starts while ${high.id} has ${crewOf(after, high.id)} of ${high.min}`,
        )
      }
  })
})

test('no job waits for ever: while others end, each that the volunteers can start is started', () => {
  holds(({ jobs, all }) => {
    let waiting: readonly SharingJob[] = jobs.map((one) => ({ ...one, isReforming: false }))
    let here: readonly Lender[] = all
    const started = new Set<JobId>()
    for (let round = 0; round <= 2 * jobs.length && waiting.length > 0; round++) {
      here = moved(here, schedule(waiting, here, NOW), LONG_AGO)
      waiting = begun(waiting, here)
      for (const one of waiting) if (one.isRunning) started.add(one.id)
      const ending = waiting.find(({ isRunning }) => isRunning)
      waiting = waiting.filter((one) => one !== ending)
    }
    for (const one of jobs)
      if (all.filter((some) => fits(one, some)).length >= one.min) assert.ok(started.has(one.id), `${one.id} waits`)
  })
})

test('a volunteer that does nothing in its job counts for nothing there, stays, and is moved to no other', () => {
  const full = job('full', { min: 2, max: 2, isRunning: true })
  const inert = lenders(2, 'full').map((one) => ({ ...one, isInert: true }))
  const able = lenders(3)
  const all = [...inert, ...able]
  const moves = schedule([full], all, NOW)
  assert.deepEqual(
    moves.map(({ volunteer, to }) => [volunteer, to]),
    able.slice(0, 2).map(({ id }) => [id, 'full']),
  )
  assert.deepEqual(schedule([full], moved(all, moves), NOW), [], 'and no more than its maximum')
  const short = job('short', { min: 1, submittedAt: 1 })
  const crowd = [...inert, ...lenders(2, 'full', 'able')]
  assert.deepEqual(schedule([full, short], crowd, NOW), [], 'neither do they start another job')
})

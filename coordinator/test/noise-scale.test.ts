// The gradient noise scale: of a distribution whose scale is known, and what a run makes of it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own } from '@starling-grid/coordinator/run'
import { memberId, random32 } from '@starling-grid/protocol'
import { gainOfOneMore } from '../src/jobs/schedule.ts'
import { criticalCrowd, enoughOf } from '../src/run/async/crowd.ts'
import {
  type Contribution,
  enoughVolunteers,
  NO_ESTIMATE,
  type NoiseEstimate,
  noiseScale,
  versionsNeeded,
  withVersion,
} from '../src/run/policy/noise-scale.ts'
import { ask, asyncDesk, type Grant, push } from './async-desk.ts'
import type { Desk } from './run-desk.ts'

const LENGTH = 400
/** of each number's mean, and of one sample: |G|² = 0.04 · 400 = 16, tr Σ = 100 · 400 = 40,000 */
const MEAN = 0.2
const DEVIATION = 10
const SCALE = (DEVIATION / MEAN) ** 2

/** Sums of twelve uniform numbers are about normal. */
function normal(random: () => number): number {
  let sum = 0
  for (let i = 0; i < 12; i++) sum += random() / 2 ** 32
  return sum - 6
}

/** Mean gradients of so many samples each, and the weighted mean of all, as norms. */
function version(
  sizes: readonly number[],
  random: () => number,
  factors: readonly number[] = [],
): [Contribution[], number] {
  const all = sizes.reduce((sum, size) => sum + size, 0)
  const mean = new Float64Array(LENGTH)
  const contributions = sizes.map((samples, n) => {
    const factor = factors[n] ?? 1
    let squares = 0
    for (let i = 0; i < LENGTH; i++) {
      const value = MEAN + (DEVIATION / Math.sqrt(samples)) * normal(random)
      squares += value ** 2
      mean[i] = (mean[i] ?? 0) + (factor * samples * value) / all
    }
    return { samples, norm: Math.sqrt(squares), factor }
  })
  return [contributions, Math.sqrt(mean.reduce((sum, value) => sum + value ** 2, 0))]
}

function estimated(sizes: readonly number[], versions: number, factors?: readonly number[]): NoiseEstimate {
  const random = random32(7)
  let estimate = NO_ESTIMATE
  for (let i = 0; i < versions; i++) estimate = withVersion(estimate, ...version(sizes, random, factors))
  return estimate
}

test('the scale of a known distribution is found, from contributions of one size and of several', () => {
  for (const sizes of [
    [400, 400, 400, 400, 400, 400, 400, 400],
    [200, 300, 400, 900],
  ]) {
    const scale = noiseScale(estimated(sizes, 60)) ?? 0
    assert.ok(Math.abs(scale / SCALE - 1) < 0.2, `about ${SCALE} of ${sizes.length} contributions, got ${scale}`)
  }
})

test('contributions that were damped for being late are reckoned with as such', () => {
  const scale = noiseScale(estimated([400, 400, 400, 400], 60, [1, 0.5, 1, 0.25])) ?? 0
  assert.ok(Math.abs(scale / SCALE - 1) < 0.25, `about ${SCALE}, got ${scale}`)
})

test('one contribution says nothing, and few versions say nothing yet', () => {
  assert.equal(withVersion(NO_ESTIMATE, [{ samples: 10, norm: 1, factor: 1 }], 1), NO_ESTIMATE)
  assert.equal(noiseScale(estimated([400, 400], 9)), undefined)
  assert.notEqual(noiseScale(estimated([400, 400], 10)), undefined)
})

test('of 64 volunteers far beyond the scale a few train as fast; far below it all are of use', () => {
  const few = enoughVolunteers(2, 64)
  assert.ok(few < 32, `got ${few}`)
  assert.ok(versionsNeeded(2, few) <= 1.1 * versionsNeeded(2, 64))
  assert.ok(versionsNeeded(2, few - 1) > 1.1 * versionsNeeded(2, 64), 'no fewer do')
  assert.ok(enoughVolunteers(1000, 64) > 57)
  assert.equal(enoughVolunteers(Number.POSITIVE_INFINITY, 64), 64)
  assert.equal(enoughVolunteers(0, 64), 1)
})

test('one volunteer more gains a job next to nothing beyond its scale, so that another job gets it', () => {
  const speeds = new Map([
    [8, 800],
    [9, 900],
  ])
  const open = gainOfOneMore({ speeds, priority: 0 }, 8)
  assert.ok(Math.abs(open - 1 / 8) < 1e-9)
  const full = gainOfOneMore({ speeds, priority: 0, criticalMembers: 1 }, 8)
  assert.ok(full > 0 && full < open / 7, `got ${full}`)
})

const NAMES = ['a', 'b', 'c', 'd', 'e', 'f']

/** A run of groups whose every version has these norms: all of one contribution, and of the mean. */
function pushedRounds(eachNorm: number, meanNorm: number): Desk {
  const { desk, grants: first } = asyncDesk(NAMES, {
    blocks: 10_000,
    batchBlocks: 5,
    blockSamples: 100,
    async: asyncPolicy({ update: 'all' }, 12, { innerSteps: 4 }),
  })
  let grants = new Map<string, Grant>(NAMES.map((name, i) => [name, first[i] ?? assert.fail(name)]))
  for (let i = 0; i < 12; i++) {
    desk.now += 1000
    for (const [name, grant] of grants) push(desk, name, grant, { norms: { gradient: eachNorm, statistics: 0 } })
    desk.feed({ type: 'server-closed', version: desk.state.chain.head, norm: meanNorm })
    grants = new Map(NAMES.map((name) => [name, ask(desk, name)]))
  }
  return desk
}

test('a run whose groups bring nearly the same says that fewer would do; one of mere chance does not', () => {
  const alike = pushedRounds(1, 0.98)
  assert.equal(alike.state.chain.head.v, 12)
  assert.equal(enoughOf(alike.state), 1)
  assert.match(alike.state.phaseReason, /1 volunteer would train as fast as these 6: beyond \d+ samples a version/)
  const chance = pushedRounds(1, 1 / Math.sqrt(6))
  assert.ok((criticalCrowd(chance.state) ?? 0) > 100)
  assert.equal(enoughOf(chance.state), undefined)
  assert.doesNotMatch(chance.state.phaseReason, /would train as fast/)
})

test('a norm of a version that was cut off is of no other version', () => {
  const desk = pushedRounds(1, 0.98)
  const { estimate } = desk.state.crowd
  desk.feed({ type: 'server-closed', version: desk.state.chain.head, norm: 5 })
  assert.equal(desk.state.crowd.estimate, estimate)
  assert.equal(own(desk.state, 'crowd').open.length, 0)
  assert.ok(desk.state.members.has(memberId('a')))
})

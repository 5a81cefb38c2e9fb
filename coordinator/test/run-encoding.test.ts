// `encoding: auto`: which encoding is chosen and why, that validations end one, and that every member of a generation
// and every round is told the same.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own, type RunConfig } from '@starling-grid/coordinator/run'
import { type GradientEncoding, jobId, memberId, type VersionRef } from '@starling-grid/protocol'
import { encodingsOf } from '../src/jobs/rounds.ts'
import {
  chooseEncoding,
  type EncodingChoice,
  type RungCost,
  UNWATCHED,
  watchLoss,
} from '../src/run/policy/encoding-choice.ts'
import { betterEncoding } from '../src/run/policy/encoding-cost.ts'
import { ask, push } from './async-desk.ts'
import { Desk } from './run-desk.ts'

const RUNGS = [
  { encoding: 'f32', bytes: 4_000_000, roundBytes: { push: 4_000_000, pull: 4_000_000 } },
  { encoding: 'f16', bytes: 2_000_000, roundBytes: { push: 2_000_000, pull: 2_000_000 } },
  { encoding: 'int8', bytes: 1_000_000, roundBytes: { push: 1_000_000, pull: 2_000_000 } },
  { encoding: 'sparse2', bytes: 64_000, roundBytes: { push: 64_000, pull: 2_000_000 } },
] as const satisfies RunConfig['encodings']

function costs(...ms: readonly (number | undefined)[]): RungCost[] {
  return RUNGS.slice(0, ms.length).map(({ encoding }, i) => ({ encoding, ms: ms[i] }))
}

function at(encoding: GradientEncoding): EncodingChoice {
  return { encoding, reason: '' }
}

test('an encoding is taken where exchange is what costs: the finest of those that are about as fast', () => {
  assert.equal(chooseEncoding(costs(1000, 980, 970), at('f32'), UNWATCHED, true).encoding, 'f32')
  const slow = chooseEncoding(costs(4000, 2200, 1300, 1250), at('f32'), UNWATCHED, true)
  assert.equal(slow.encoding, 'int8')
  assert.match(slow.reason, /^3\.1 times as fast as f32: 4000 ms with f32, 2200 ms with f16, 1300 ms with int8/)
  assert.equal(chooseEncoding(costs(4000, 2200, 1300, 500), at('f32'), UNWATCHED, true).encoding, 'sparse2')
})

test('it stays while it is a little better, and is kept while nothing is measured', () => {
  assert.equal(chooseEncoding(costs(1080, 1020, 1000), at('int8'), UNWATCHED, true).encoding, 'int8')
  assert.equal(chooseEncoding(costs(1020, 1010, 1000), at('int8'), UNWATCHED, true).encoding, 'f32')
  const unmeasured = chooseEncoding(costs(undefined, undefined), at('f16'), UNWATCHED, true)
  assert.equal(unmeasured.encoding, 'f16')
  assert.match(unmeasured.reason, /not measured yet/)
  const chosen = { encoding: 'int8', reason: 'it was faster' } as const
  assert.deepEqual(chooseEncoding(costs(undefined, undefined, undefined), chosen, UNWATCHED, true), chosen)
})

test('most of a difference is left out only where a validation shows what that costs', () => {
  const blind = chooseEncoding(costs(4000, 2200, 1300, 500), at('f32'), UNWATCHED, false)
  assert.equal(blind.encoding, 'int8')
  assert.match(blind.reason, /sparse2 waits for a confirmed validation/)
})

test('an encoding with which the loss rose is given up for the next finer one, for good', () => {
  const before = watchLoss(UNWATCHED, { loss: 0.5, seen: 1 }, { index: 0, encoding: 'f32' })
  const fell = watchLoss(before, { loss: 0.4, seen: 2 }, { index: 3, encoding: 'sparse2' })
  const wavered = watchLoss(fell, { loss: 0.405, seen: 3 }, { index: 3, encoding: 'sparse2' })
  assert.equal(wavered.barred, Number.POSITIVE_INFINITY)
  const rose = watchLoss(wavered, { loss: 0.43, seen: 4 }, { index: 3, encoding: 'sparse2' })
  const next = chooseEncoding(costs(4000, 2200, 1300, 500), at('sparse2'), rose, true)
  assert.equal(next.encoding, 'int8')
  assert.match(next.reason, /loss rose from 0\.4 to 0\.43 with sparse2, not used again/)
  assert.equal(chooseEncoding(costs(4000, 2200, 1300, 500), at('int8'), rose, true).encoding, 'int8')
})

test('a loss that is no number is no better one, and whole numbers have no one to blame', () => {
  const known = { ...UNWATCHED, lowest: 0.4 }
  assert.equal(watchLoss(known, { loss: Number.NaN, seen: 1 }, { index: 2, encoding: 'int8' }).barred, 2)
  const whole = watchLoss(known, { loss: 0.9, seen: 1 }, { index: 0, encoding: 'f32' })
  assert.equal(whole.barred, Number.POSITIVE_INFINITY)
})

test('sparse differences are offered to rounds alone', () => {
  assert.deepEqual(encodingsOf({ mode: 'auto' }), ['f32', 'f16', 'int8'])
  assert.deepEqual(encodingsOf({ mode: 'async', groups: { innerSteps: 1 } }), ['f32', 'f16', 'int8'])
  assert.deepEqual(encodingsOf({ mode: 'async', groups: {} }), ['f32', 'f16', 'int8', 'sparse2'])
  assert.deepEqual(encodingsOf({ mode: 'local' }), ['f32', 'f16', 'int8', 'sparse2'])
})

function formed(desk: Desk): void {
  for (const name of ['a', 'b']) desk.answer(name)
  desk.run('a', 'b')
}

/** Two members in a ring over lines of 1 MB/s: a step takes far longer than its computing. */
function slowRing(): Desk {
  const desk = new Desk({ blocks: 3000, encodings: RUNGS.slice(0, 3), exchange: { asked: 'ring', bytes: 4_000_000 } })
  desk.join('a', 'b')
  formed(desk)
  desk.state.health.pace = { records: 50, recordMs: 4200, computeMs: 200 }
  desk.state.health.linkMs.set(memberId('a'), 20)
  return desk
}

test('a ring over slow lines forms again with an encoding, and all its members are told the same', () => {
  const desk = slowRing()
  assert.equal(desk.state.encoding.choice.encoding, 'f32')
  assert.equal(betterEncoding(desk)?.encoding, 'int8')
  desk.now += 20_000
  desk.feed({ type: 'tick' })
  assert.deepEqual(desk.sent('last-step'), [], 'a generation lasts a while first')
  desk.now += 20_000
  desk.feed({ type: 'tick' })
  assert.equal(desk.sent('last-step').length + desk.sent('freeze').length, 2, 'a planned change of the ring')
  desk.wait(3001) // no step ends meanwhile
  for (const name of ['a', 'b']) desk.answer(name)
  assert.deepEqual(
    desk.sent('form').map(({ encoding }) => encoding),
    ['int8', 'int8'],
  )
  assert.match(desk.state.encoding.choice.reason, /times as fast as f32/)
})

test('an encoding with which the validation rose is left at once', () => {
  const desk = slowRing()
  own(desk.state, 'encoding').choice = { encoding: 'int8', reason: '' } // as if it had been chosen
  const version = (v: number): VersionRef => ({ ...desk.state.chain.head, v })
  const evaluate = (v: number, loss: number): void => {
    Object.assign(desk.state, {
      evaluations: [...desk.state.evaluations, { version: version(v), loss, accuracy: 0, confirmed: true, count: v }],
    })
    desk.feed({ type: 'tick' })
  }
  evaluate(1, 0.5)
  assert.deepEqual(desk.sent('last-step'), [])
  evaluate(2, 0.9)
  assert.equal(betterEncoding(desk)?.encoding, 'f16')
  desk.feed({ type: 'tick' })
  assert.equal(desk.sent('last-step').length + desk.sent('freeze').length, 2)
})

test('a grant of a round names the encoding of its push, which follows the lines', () => {
  const desk = new Desk({
    job: jobId('desk'),
    mode: 'async',
    minVolunteers: 1,
    blocks: 10_000,
    batchBlocks: 5,
    blockSamples: 100,
    encodings: RUNGS,
    roundBytes: { push: 4_000_000, pull: 4_000_000 },
    async: asyncPolicy(undefined, 12, {}),
  })
  desk.join('a')
  desk.answer('a')
  desk.feed({ type: 'speed', member: memberId('a'), samplesPerSecond: 100 })
  const first = ask(desk, 'a')
  assert.equal(first.encoding, 'f32')
  desk.now += 120_000 // nearly all of it is exchange
  push(desk, 'a', first)
  const second = ask(desk, 'a')
  assert.equal(second.encoding, 'f16') // the version before it is of halves as well, so less would gain little
  assert.equal(desk.state.members.get(memberId('a'))?.granted?.encoding, 'f16')
})

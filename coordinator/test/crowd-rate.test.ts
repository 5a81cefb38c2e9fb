// How the inner learning rate of rounds follows the number of members: a pure function, and what grants say.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy } from '@starling-grid/coordinator/run'
import { memberId } from '@starling-grid/protocol'
import { crowdGain, crowdRate } from '../src/run/groups/crowd-rate.ts'
import { ask, push } from './async-desk.ts'
import { Desk } from './run-desk.ts'

test('one member learns at the rate of the job, few at its root, and many at that of the noise scale', () => {
  assert.equal(crowdRate(1), 1)
  assert.equal(crowdRate(0), 1)
  assert.ok(Math.abs(crowdRate(4, Number.POSITIVE_INFINITY) - 2) < 0.02)
  assert.ok(Math.abs(crowdRate(1_000_000, 15) - 4) < 0.01, '√(1 + c)')
})

test('the rate rises with every member, and is never above what a message may say', () => {
  const rates = [1, 2, 4, 16, 64, 256, 5000].map((members) => crowdRate(members, Number.POSITIVE_INFINITY))
  assert.deepEqual(
    rates,
    rates.toSorted((a, b) => a - b),
  )
  assert.ok((rates.at(-1) ?? 0) <= 17)
})

test('a scale of nothing leaves the rate where it is: all members learn alike', () => {
  assert.equal(crowdRate(64, 0), 1)
})

test('the outer step of few members is as the job says, that of many at most half as long again', () => {
  assert.deepEqual([1, 4, 8].map(crowdGain), [1, 1, 1])
  assert.ok(crowdGain(64) > crowdGain(16))
  assert.ok(crowdGain(5000) <= 1.5)
})

test('a push of a crowd counts for more than one of few, in jobs that ask for it alone', () => {
  const names = Array.from({ length: 16 }, (_, i) => `m${i}`)
  const dampingOf = (crowd: { crowdRate?: 'sqrt' }): number | undefined => {
    const policy = asyncPolicy(undefined, 12, { innerSteps: 4, ...crowd })
    const desk = new Desk({ mode: 'async', minVolunteers: names.length, blocks: 1000, async: policy })
    desk.join(...names)
    for (const name of names) desk.answer(name)
    push(desk, 'm0', ask(desk, 'm0'))
    return desk.effects.find((effect) => effect.type === 'server-add')?.damping
  }
  assert.equal(dampingOf({ crowdRate: 'sqrt' }), crowdGain(16))
  assert.equal(dampingOf({}), 1)
})

test('grants say the rate of those that bring leases back, in jobs that ask for it alone', () => {
  const rateOf = (crowdRateOfJob?: 'sqrt'): number | undefined => {
    const groups = { innerSteps: 4, ...(crowdRateOfJob === undefined ? {} : { crowdRate: crowdRateOfJob }) }
    const policy = asyncPolicy(undefined, 12, groups)
    const desk = new Desk({ mode: 'async', minVolunteers: 3, blocks: 1000, async: policy })
    desk.join('a', 'b', 'c')
    for (const name of ['a', 'b', 'c']) desk.answer(name)
    const idle = desk.state.members.get(memberId('c'))
    if (idle !== undefined) idle.missedLeases = 1
    return ask(desk, 'a').rate
  }
  assert.equal(rateOf('sqrt'), crowdRate(2))
  assert.equal(rateOf(), undefined)
})

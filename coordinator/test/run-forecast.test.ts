// What is expected of the members of now: by their speeds, and by what an exchange was measured to take.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { forecastSpeed } from '../src/run/policy/forecast.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

/** Each member computes 100 samples a second (Desk.join); a step has 60. */
const JOB: DeskOptions = { blocks: 6000, batchBlocks: 60, blockSamples: 1, timing: { admitMs: 1000, stallMs: 1e9 } }

function made(desk: Desk) {
  return desk.state.forecast.made ?? assert.fail('no forecast')
}

test('volunteers that wait for a job to start are forecast, and again when one comes or goes', () => {
  const desk = new Desk({ ...JOB, minVolunteers: 4 })
  assert.equal(desk.state.forecast.made, undefined)
  desk.join('a', 'b')
  assert.deepEqual(made(desk), { members: 2, samples: 60, computeMs: 300, exchangeMs: null })
  assert.equal(forecastSpeed(made(desk)), 200)
  desk.join('c')
  assert.equal(forecastSpeed(made(desk)), 300)
  desk.lose('b')
  assert.equal(made(desk).members, 2)
})

test('a ring is forecast when it starts, with the exchange that was measured before, and that stays', () => {
  const desk = new Desk({ ...JOB, minVolunteers: 2, exchange: { asked: 'ring', bytes: 1000 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  assert.equal(made(desk).exchangeMs, null, 'nothing is measured of the first ring')
  for (const id of ['a', 'b']) desk.state.health.linkMs.set(memberId(id), 5)
  desk.now += 400
  for (let v = 1; v <= 30; v++) {
    desk.now += 400 // 300 ms computing
    desk.step(v)
  }
  assert.equal(made(desk).exchangeMs, null, 'what was foreseen does not follow the truth')
  desk.join('c')
  assert.equal(made(desk).members, 2, 'of the ring that runs')
  desk.admit()
  desk.run('a', 'b', 'c')
  const { members, computeMs, exchangeMs } = made(desk)
  assert.deepEqual([members, computeMs], [3, 200])
  // 100 ms of two: 2 hops of 5 ms, and 90 ms for the bytes; of three 4 hops, and 4/3 of the bytes
  assert.ok(Math.abs((exchangeMs ?? 0) - (4 * 5 + (4 / 3) * 90)) < 10, `${exchangeMs} ms`)
  assert.equal(forecastSpeed(made(desk)), 60_000 / (200 + (exchangeMs ?? 0)))
})

test('one member exchanges nothing, and with weak scaling a step grows with the members', () => {
  const weak = { warmup: 0, optimizer: { type: 'sgd', lr: 1 } } as const
  const desk = new Desk({ ...JOB, minVolunteers: 3, weak })
  desk.join('a')
  assert.deepEqual(made(desk), { members: 1, samples: 60, computeMs: 600, exchangeMs: 0 })
  desk.join('b')
  assert.deepEqual(made(desk), { members: 2, samples: 120, computeMs: 600, exchangeMs: null })
})

test('all of a crowd are looked at every five seconds, also for those that came last', () => {
  const desk = new Desk({ ...JOB, mode: 'async', minVolunteers: 1 })
  const crowd = Array.from({ length: 300 }, (_, i) => `m${i}`)
  desk.join('first')
  desk.answer('first')
  desk.join(...crowd.slice(1))
  assert.equal(made(desk).members, 255, 'the rest came in the same seconds')
  desk.wait(4999)
  assert.equal(made(desk).members, 255)
  desk.wait(1)
  assert.equal(made(desk).members, 300)
  desk.lose('m1')
  assert.equal(made(desk).members, 300)
  desk.wait(5000)
  assert.deepEqual([made(desk).members, forecastSpeed(made(desk))], [299, 29_900])
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cheaper, measure, type StepPace } from '../src/run/policy/exchange-cost.ts'

const H = 16

function steady(recordMs: number, computeMs: number, records = 40): StepPace {
  let pace = measure(undefined, recordMs, computeMs)
  for (let i = 1; i < records; i++) pace = measure(pace, recordMs, computeMs)
  return pace
}

test('an exchange that costs half as much again as computing gives way to local rounds, with both costs', () => {
  const choice = cheaper(steady(2500, 1000), 'ring', H)
  assert.equal(choice?.mode, 'local')
  assert.deepEqual(choice?.costs, { ring: 2500, local: 1000 + 1500 / H })
})

test('a ring that waits little for its exchange stays one', () => {
  assert.equal(cheaper(steady(1500, 1000), 'ring', H)?.mode, 'ring')
})

test('local rounds give way to the ring at a lower cost of exchange than that at which they began', () => {
  const rounds = (exchange: number): StepPace => steady(H * 1000 + exchange, H * 1000)
  assert.equal(cheaper(rounds(200), 'local', H)?.mode, 'ring')
  for (const exchange of [400, 900, 1500]) assert.equal(cheaper(rounds(exchange), 'local', H)?.mode, 'local')
  assert.equal(cheaper(steady(1900, 1000), 'ring', H)?.mode, 'ring')
})

test('nothing is decided before enough was measured, or in a job without local rounds', () => {
  assert.equal(cheaper(undefined, 'ring', H), undefined)
  assert.equal(cheaper(steady(9000, 10, 5), 'ring', H), undefined)
  assert.equal(cheaper(steady(9000, 10), 'ring', 1), undefined)
})

test('one slow step does not move the averages far', () => {
  const { recordMs } = measure(steady(1000, 900), 11_000, 900)
  assert.equal(Math.round(recordMs), 2000)
})

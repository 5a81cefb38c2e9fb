// What ships, not a model of it: production's coordinator shell and volunteers on virtual time, under faults.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addCounts, noCounts } from '../src/world/counts.ts'
import { FAULTS } from '../src/world/faults/faults.ts'
import { type GridOutcome, simulateGrid } from '../src/world/world.ts'

const SEEDS = 100

function explain({ scenario, violation, faults, ms }: GridOutcome): string {
  const { seed, shape, seats } = scenario
  return (
    `seed ${seed} breaks ${violation?.invariant} after ${(ms / 1000).toFixed(1)} s: ` +
    `${violation?.text} (${shape.mode}, ${seats} seats; ${faults.join(', ')})`
  )
}

test('under kills, cut sockets and links, failing disks and takeovers each epoch trains each block once', async () => {
  const total = noCounts()
  const struck = new Set<string>()
  for (let seed = 1; seed <= SEEDS; seed++) {
    const outcome = await simulateGrid(seed)
    assert.equal(outcome.violation, undefined, explain(outcome))
    addCounts(total, outcome.counts)
    for (const fault of outcome.faults) struck.add(fault)
  }
  assert.deepEqual(
    FAULTS.filter((fault) => !struck.has(fault)),
    [],
    'faults that no seed drew',
  )
  for (const reached of ['ballots', 'generations', 'rewinds', 'checkpoints', 'validations', 'ringToAsync'] as const)
    assert.ok(total[reached] > 0, `no seed reached: ${reached}`)
})

test('threat 43: two liars of three pass no false state, whatever is late', async () => {
  const total = noCounts()
  const members = { encoding: 'f32', linkless: false } as const // the ledger knows what such states hold
  for (let seed = 1; seed <= 10; seed++) {
    const mode = seed % 3 === 0 ? 'auto' : 'ring'
    const outcome = await simulateGrid(seed, { mode, members, faults: 0, accomplices: 2 })
    assert.equal(outcome.violation, undefined, explain(outcome))
    addCounts(total, outcome.counts)
  }
  assert.ok(total.derivedStates >= 10, `${total.derivedStates} states were derived`)
})

test('a seed gives the same journal, row for row, every time', async () => {
  for (const seed of [1, 2, 17]) {
    const [one, again] = [await simulateGrid(seed), await simulateGrid(seed)]
    assert.deepEqual(again.fingerprint, one.fingerprint, `seed ${seed}`)
    assert.equal(again.events, one.events, `seed ${seed}`)
  }
})

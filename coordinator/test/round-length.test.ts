// How long rounds of replica groups should last: exchange, departures and the coordinator's line.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own } from '@starling-grid/coordinator/run'
import { memberId } from '@starling-grid/protocol'
import { chooseRoundLength, type RoundMeasurements } from '../src/run/groups/round-length.ts'
import { ask, type Grant, push } from './async-desk.ts'
import { Desk } from './run-desk.ts'

const CALM: RoundMeasurements = {
  exchangeMs: 900,
  stayMs: Number.POSITIVE_INFINITY,
  members: 10,
  bytes: 20_000_000,
}

test('where all stay, exchange takes three per cent of a round', () => {
  const { ms, why } = chooseRoundLength(CALM)
  assert.equal(Math.round(ms), 30_000)
  assert.match(why, /exchange takes 3\.0 % of a round/)
})

test('where members leave, rounds are shorter, by the square root of exchange and stay', () => {
  const { ms, why } = chooseRoundLength({ ...CALM, stayMs: 300_000 })
  assert.equal(Math.round(ms), Math.round(Math.sqrt(2 * 900 * 300_000)))
  assert.match(why, /members stay 5 min/)
})

test('the coordinator carries a thousand members at 100 Mbit/s', () => {
  const { ms, why } = chooseRoundLength({ ...CALM, stayMs: 300_000, members: 1000, bytes: 820_000_000 })
  assert.equal(Math.round((1000 * 820_000 * 8) / (ms + 900) / 1000), 92)
  assert.match(why, /carries 1000 members/)
})

test('a round is never longer than its lease can be, and never so short that it is all latency', () => {
  assert.equal(chooseRoundLength({ ...CALM, exchangeMs: 0 }).ms, 10_000)
  assert.equal(chooseRoundLength({ ...CALM, exchangeMs: 60_000 }).ms, 200_000)
})

/** Members of 100 samples a second in rounds that the run chooses; blocks of 100 samples, batches of five. */
function pacedDesk(names: readonly string[]): Desk {
  const desk = new Desk({
    mode: 'async',
    minVolunteers: names.length,
    blocks: 10_000,
    batchBlocks: 5,
    blockSamples: 100,
    async: asyncPolicy(undefined, 12, {}),
  })
  desk.join(...names)
  for (const name of names) desk.answer(name)
  for (const name of names) desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond: 100 })
  return desk
}

const NAMES = ['a', 'b', 'c', 'd']

/** One round of all, of which so many ms are exchange. */
function round(desk: Desk, grants: Map<string, Grant>, exchangeMs: number): void {
  const [first] = grants.values()
  desk.now += 1000 * (first?.leases.length ?? 0) + exchangeMs
  for (const [name, grant] of grants)
    push(desk, name, grant, { samples: 100 * grant.leases.length, targets: 100 * grant.leases.length })
  for (const name of NAMES) grants.set(name, ask(desk, name))
}

test('a run measures the exchange of its rounds, and makes them longer where it is slow', () => {
  const desk = pacedDesk(NAMES)
  const grants = new Map(NAMES.map((name) => [name, ask(desk, name)] as const))
  assert.deepEqual([grants.get('a')?.leases.length, grants.get('a')?.innerSteps], [20, 4], 'of 20 s at first')
  round(desk, grants, 3000)
  assert.deepEqual([grants.get('a')?.leases.length, grants.get('a')?.innerSteps], [100, 20])
  assert.match(desk.state.phaseReason, /20 inner steps and 100 s \(exchange takes 3\.0 % of a round\)/)
})

test('a run counts who leaves, and makes its rounds shorter', () => {
  const desk = pacedDesk(NAMES)
  const grants = new Map(NAMES.map((name) => [name, ask(desk, name)] as const))
  own(desk.state, 'rounds').at = desk.now
  desk.join('short')
  desk.now += 60_000
  desk.feed({ type: 'tick' })
  desk.feed({ type: 'member-lost', member: memberId('short'), reason: 'closed', expected: false })
  desk.now -= 60_000 // leases run on
  round(desk, grants, 3000)
  const stayed = desk.state.rounds.stays[0]
  assert.equal(stayed.departures, 1)
  assert.equal(grants.get('a')?.leases.length, Math.round(Math.sqrt((2 * 3000 * stayed.memberMs) / 1e6)))
})

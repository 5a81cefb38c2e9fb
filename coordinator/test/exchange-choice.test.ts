// Which way gradients take: what each would cost, and that the choice does not flap.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import {
  asInRing,
  chooseExchange,
  exchangeTimes,
  type ExchangeFigures,
  measuredNow,
} from '../src/run/policy/exchange-choice.ts'
import { bytesPerMsOf } from '../src/run/policy/exchange-model.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const MB = 1_000_000
const near = (a: number, b: number): boolean => Math.abs(a - b) < 1e-6 * Math.max(1, Math.abs(b))

describe('the cost of an exchange', () => {
  test('is 2(N−1) latencies around a ring and two in a direct exchange, and the same bytes', () => {
    for (const members of [3, 8, 16]) {
      const { ring, direct } = exchangeTimes({ members, bytes: MB, latencyMs: 20, bytesPerMs: 2500 }, 0)
      const carry = ((2 * (members - 1)) / members) * (MB / 2500)
      assert.ok(near(ring, 40 * (members - 1) + carry), `${ring}`)
      assert.ok(
        direct >= 40 + carry && direct < (40 + carry) * 1.1,
        'and what it takes to open more links than a ring has',
      )
      assert.equal(near(direct, 40 + carry), members === 3, 'three are linked to each other anyway')
    }
  })

  test('tells the throughput of links from either way', () => {
    for (const exchange of ['ring', 'direct'] as const) {
      const exchangeMs = (exchange === 'ring' ? 14 : 2) * 20 + ((2 * 7) / 8) * (MB / 2500)
      assert.ok(near(bytesPerMsOf(exchange, { members: 8, exchangeMs }, { bytes: MB, latencyMs: 20 }), 2500))
    }
    assert.equal(
      bytesPerMsOf('ring', { members: 8, exchangeMs: 100 }, { bytes: MB, latencyMs: 20 }),
      Number.POSITIVE_INFINITY,
      'no slower than its latency',
    )
  })

  test('in a direct exchange becomes that of a ring for the choice of its length', () => {
    const pace = { records: 30, recordMs: 500, computeMs: 100 }
    assert.equal(asInRing(pace, { members: [1, 2, 3, 4], exchange: { type: 'direct' } }, 10).recordMs, 540)
    assert.equal(asInRing(pace, { members: [1, 2, 3, 4], exchange: { type: 'ring' } }, 10).recordMs, 500)
  })

  test('counts as measured when the generation has settled', () => {
    const generation = { members: [1, 2, 3, 4], exchange: { type: 'direct' } } as const
    const pace = { recordMs: 500, computeMs: 100 }
    assert.deepEqual(measuredNow({ measured: {}, pace: { ...pace, records: 5 } }, generation), {})
    assert.deepEqual(measuredNow({ measured: {}, pace: { ...pace, records: 20 } }, generation), {
      direct: { members: 4, exchangeMs: 400, computeMs: 100 },
    })
  })
})

/** Eight members over links of 20 ms that need 300 ms for a step's bytes. */
const figures: ExchangeFigures = {
  members: 8,
  bytes: MB,
  latencyMs: 20,
  measured: { ring: { members: 8, exchangeMs: 580, computeMs: 200 } },
}

describe('the way of the next generation', () => {
  test('is the one that the job asks for', () => {
    assert.deepEqual(
      ['ring', 'direct'].map((asked) => chooseExchange(asked as 'ring' | 'direct', 'ring', figures).type),
      ['ring', 'direct'],
    )
    assert.match(chooseExchange('direct', 'ring', figures).reason, /the job asks/)
  })

  test('is a direct exchange where latency dominates, and says what both would cost', () => {
    const { type, reason, costs } = chooseExchange('auto', 'ring', figures)
    assert.equal(type, 'direct')
    assert.match(
      reason,
      /580 ms around the ring and 3\d\d ms as a direct exchange \(20\.0 ms from one to another, 5\.8 MB\/s\)/,
    )
    assert.ok(costs !== null && costs.ring === 580 && costs.direct < 400)
  })

  test('is the ring where links are quick, or computing takes nearly all of a step', () => {
    assert.equal(chooseExchange('auto', 'ring', { ...figures, latencyMs: 0.5 }).type, 'ring')
    assert.equal(
      chooseExchange('auto', 'ring', {
        ...figures,
        measured: { ring: { members: 8, exchangeMs: 580, computeMs: 20_000 } },
      }).type,
      'ring',
    )
  })

  test('stays as it is until something was measured, and for two members, who have no choice', () => {
    assert.equal(chooseExchange('auto', 'ring', { ...figures, latencyMs: undefined }).type, 'ring')
    assert.equal(chooseExchange('auto', 'direct', { ...figures, measured: {} }).type, 'direct')
    assert.equal(chooseExchange('auto', 'ring', { ...figures, members: 2 }).type, 'ring')
  })

  test('is the ring for more than sixteen, and where a direct exchange is in doubt, with the reason', () => {
    assert.match(chooseExchange('auto', 'direct', { ...figures, members: 17 }).reason, /16 at most/)
    assert.deepEqual(
      chooseExchange('auto', 'direct', { ...figures, doubt: { reason: 'not now', always: false } }).reason,
      'not now',
    )
    assert.equal(
      chooseExchange('direct', 'direct', { ...figures, doubt: { reason: 'not now', always: false } }).type,
      'direct',
    )
  })

  test('does not flap: a small gain does not pay for a change, and keeps what is there', () => {
    const slight = (current: 'ring' | 'direct') =>
      chooseExchange('auto', current, {
        ...figures,
        measured: {
          ring: { members: 8, exchangeMs: 550, computeMs: 1000 },
          direct: { members: 8, exchangeMs: 450, computeMs: 1000 },
        },
      }).type
    assert.deepEqual([slight('ring'), slight('direct')], ['ring', 'direct'])
  })

  test('is the ring again when the direct exchange measured slower than predicted, and stays so', () => {
    const measured = {
      ring: { members: 8, exchangeMs: 580, computeMs: 200 },
      direct: { members: 8, exchangeMs: 700, computeMs: 200 },
    }
    for (const current of ['direct', 'ring'] as const)
      assert.equal(chooseExchange('auto', current, { ...figures, measured }).type, 'ring')
  })
})

const NAMES = ['a', 'b', 'c', 'd']

function runOf(options: DeskOptions = {}): Desk {
  const desk = new Desk({
    minVolunteers: 4,
    blocks: 3000,
    epochs: 1,
    exchange: { asked: 'auto', bytes: MB },
    timing: { checkpointSteps: 1e6, checkpointMs: 1e9, stallMs: 1e9 },
    ...options,
  })
  desk.join(...NAMES)
  desk.run(...NAMES)
  return desk
}

/** Steps of so many ms, of which the members' 400 samples/s need 7.5 for three blocks. */
function steps(desk: Desk, count: number, ms: number): void {
  for (let i = 0; i < count; i++) {
    desk.now += ms
    desk.step(desk.state.chain.head.v + 1)
  }
}

const exchangeNow = (desk: Desk): string | undefined => {
  const { phase } = desk.state
  return phase.type === 'ring' || phase.type === 'form' ? phase.exchange.type : undefined
}
const again = (desk: Desk): void => desk.run(...NAMES)

test('a run goes over to a direct exchange between two steps once it has measured its links, and tells why', () => {
  const desk = runOf()
  assert.equal(exchangeNow(desk), 'ring')
  for (const name of NAMES) desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond: 100, linkMs: 50 })
  steps(desk, 25, 400)
  desk.wait(0)
  const { phase } = desk.state
  assert.deepEqual([phase.type, desk.sent('last-step')], ['ring', []], 'not at once: a generation lasts a while')
  steps(desk, 55, 400)
  desk.wait(0)
  assert.equal(desk.sent('last-step').length, 4, 'no step is lost to the change')
  steps(desk, 2, 400)
  assert.equal(desk.phase, 'freeze')
  for (const name of NAMES) desk.answer(name, [])
  const form = desk.sent('form')[0]
  assert.equal(form?.exchange?.type, 'direct')
  assert.match(form?.exchange?.reason ?? '', /around the ring and \d+ ms as a direct exchange \(50\.0 ms/)
  assert.ok(
    desk.effects.some(
      (effect) =>
        effect.type === 'note' &&
        effect.kind === 'mode' &&
        effect.text.startsWith('gradients travel from each member to each'),
    ),
  )
  for (const name of NAMES) desk.confirm(name)
  steps(desk, 200, 200)
  desk.wait(0)
  assert.deepEqual([desk.phase, exchangeNow(desk), desk.sent('last-step')], ['ring', 'direct', []], 'and stays there')
})

test('a job that asks for a direct exchange has it from the first step; links that do not open are relayed', () => {
  const desk = runOf({ exchange: { asked: 'direct', bytes: MB } })
  assert.equal(exchangeNow(desk), 'direct')
  desk.accuse('a', 'c', 'unopened')
  for (const name of NAMES) desk.answer(name, desk.state.chain.head.v === 0 ? undefined : [])
  assert.deepEqual(desk.sent('form')[0]?.relayed, [[0, 2]], 'also of members that are no neighbours')
  assert.equal(exchangeNow(desk), 'direct')
})

test('a run that may choose goes back to the ring, and around the two, when they cannot link', () => {
  const desk = runOf()
  desk.state.health.exchange = 'direct'
  desk.accuse('a', 'b', 'unopened')
  for (const name of NAMES) desk.answer(name)
  assert.deepEqual([exchangeNow(desk), desk.sent('form')[0]?.relayed], ['ring', []])
  assert.notDeepEqual(desk.members, NAMES.map(memberId))
})

test('members of a direct exchange with different bytes continue in a ring, which shows the origin', () => {
  const desk = runOf({ exchange: { asked: 'direct', bytes: MB } })
  const auto = runOf()
  auto.state.health.exchange = 'direct'
  for (const one of [desk, auto]) {
    again(one)
    const { phase } = one.state
    if (phase.type === 'ring') Object.assign(phase, { exchange: { ...phase.exchange, type: 'direct' } })
    const record = one.record(1)
    for (const name of ['a', 'b', 'c']) one.hold(name, record)
    one.hold('d', { ...record, lossSum: 2 })
    assert.equal(one.phase, 'freeze')
    assert.deepEqual(one.state.health.linkFailures, [], 'no link is known to be bad')
    for (const name of NAMES) one.answer(name)
  }
  assert.deepEqual(
    [exchangeNow(desk), exchangeNow(auto)],
    ['ring', 'ring'],
    'also when the job asks for a direct exchange: it would end the same way again',
  )
  for (const name of NAMES) desk.confirm(name)
  desk.wait(600_000)
  assert.equal(desk.sent('last-step').length, 4, 'until it is forgotten')
})

test('of twenty members a job that asks for a direct exchange takes sixteen', () => {
  const names = Array.from({ length: 20 }, (_, i) => `m${String(i).padStart(2, '0')}`)
  const desk = new Desk({ minVolunteers: 20, exchange: { asked: 'direct', bytes: MB } })
  desk.join(...names)
  for (const name of names) desk.answer(name)
  assert.equal(desk.members.length, 16)
})

test('who sends a slice far outside is refused by name', () => {
  const desk = runOf({ exchange: { asked: 'direct', bytes: MB } })
  desk.say('a', {
    type: 'abort',
    step: 1,
    blamed: memberId('c'),
    why: 'refused',
    links: [],
    code: 'gradient-outlier',
    message: 'it sent a slice',
  })
  assert.deepEqual(desk.refusals, ['c gradient-outlier'])
})

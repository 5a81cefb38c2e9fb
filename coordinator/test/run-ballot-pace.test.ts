// How often a run may vote: attempts that fail wait longer each time, in every mode, and journal rows per minute are
// bounded.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Mode } from '@starling-grid/protocol'
import { FakeVolunteer } from './fake-volunteer.ts'
import { QUICK, smallJob, startCoordinator, submit } from './fixture.ts'
import { Desk } from './run-desk.ts'

const TICK_MS = 200
/** what docs/MEMBERSHIP.md states */
const MOST_BALLOTS_IN_A_MINUTE = 37

/**
 * For this many ms every member answers each ballot at once, and these give up as soon as they get FORM. Returns the
 * ballots.
 */
function failing(desk: Desk, names: readonly string[], failures: readonly string[], ms: number): number {
  const before = desk.state.generation
  for (const end = desk.now + ms; desk.now < end; desk.wait(TICK_MS)) {
    const { phase } = desk.state
    if (phase.type === 'freeze')
      for (const name of names) if (!phase.claims.has(name as never)) desk.say(name, { type: 'state', claim: null })
    const formed = failures.find((name) => desk.phase === 'form' && desk.members.includes(name as never))
    if (formed !== undefined)
      desk.say(formed, {
        type: 'abort',
        step: 1,
        blamed: null,
        why: 'own',
        links: [],
        code: 'shard-corrupt',
        message: 'a shard cannot be fetched',
      })
  }
  return desk.state.generation - before
}

for (const mode of ['ring', 'local'] as const satisfies Mode[])
  for (const [what, names] of [
    ['one member', ['a']],
    ['three members', ['a', 'b', 'c']],
  ] as const)
    test(`${what} that fail every attempt open at most 15 ballots in 40 s in mode ${mode}`, () => {
      const desk = new Desk({ mode, minVolunteers: names.length })
      desk.join(...names)
      const ballots = failing(desk, names, names, 40_000)
      assert.ok(ballots <= 15, `${ballots} ballots`)
      assert.ok(ballots >= 5, 'it is tried again')
      assert.ok(
        [...desk.state.members.values()].some(({ excludedUntil }) => excludedUntil > desk.now),
        'members are left out',
      )
    })

test('the reason that people see says how long the wait is, and why', () => {
  const desk = new Desk()
  desk.join('a')
  failing(desk, ['a'], ['a'], 10_000)
  assert.match(desk.state.phaseReason, /the next attempt is in \d+\.\d s, because [5-9] attempts in a row failed/)
})

test('a wait is never longer than its bound, and the same run waits the same', () => {
  const waits = (): string[] => {
    const desk = new Desk({ timing: { retryMaxMs: 4000 } })
    desk.join('a')
    const reasons = new Set<string>()
    for (let i = 0; i < 200; i++) {
      failing(desk, ['a'], ['a'], TICK_MS)
      const [, seconds] = /the next attempt is in ([\d.]+) s/.exec(desk.state.phaseReason) ?? []
      if (seconds !== undefined) reasons.add(seconds)
    }
    return [...reasons]
  }
  const once = waits()
  assert.ok(once.length >= 5 && once.every((seconds) => Number(seconds) <= 6), once.join())
  assert.deepEqual(once, waits())
})

test('a committed step resets the count of attempts in a row that failed: the next one begins without a wait', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.join('a', 'b')
  const giveUp = (): void =>
    void desk.say('a', {
      type: 'abort',
      step: 1,
      blamed: null,
      why: 'own',
      links: [],
      code: 'shard-corrupt',
      message: 'test',
    })
  desk.run('a', 'b')
  giveUp()
  desk.run('a', 'b')
  giveUp()
  const { phase } = desk.state
  assert.ok(phase.type === 'freeze' && phase.notBefore > desk.now, 'two in a row wait')
  desk.run('a', 'b')
  desk.step(1)
  giveUp()
  const { phase: after } = desk.state
  assert.ok(after.type === 'freeze' && after.notBefore === desk.now, 'one after a step does not')
  assert.doesNotMatch(desk.state.phaseReason, /next attempt/)
})

test('while a ballot waits, newcomers and departures open no other, and it is decided when the wait is over', () => {
  const desk = new Desk()
  desk.join('a')
  failing(desk, ['a'], ['a'], 8000)
  const { generation } = desk.state
  const { phase } = desk.state
  assert.ok(phase.type === 'freeze' && phase.notBefore > desk.now)
  desk.join('b')
  desk.say('b', { type: 'state', claim: null })
  desk.lose('a')
  assert.deepEqual([desk.phase, desk.state.generation], ['freeze', generation])
  desk.wait(phase.notBefore - desk.now)
  assert.equal(desk.phase, 'form')
})

test('threat 23: however often members come and go, there are at most 37 ballots in a minute', () => {
  const desk = new Desk({ minVolunteers: 1 })
  desk.join('a')
  desk.run('a')
  const ballots: number[] = []
  for (let i = 0; i < 1500; i++) {
    desk.join(`n${i}`)
    for (const { id } of desk.state.members.values()) desk.say(id, { type: 'state', claim: null })
    for (const id of desk.members) desk.confirm(id)
    desk.lose(`n${i}`)
    desk.lose('a')
    desk.join('a')
    desk.wait(TICK_MS)
    while (ballots.length < desk.entries.filter(({ entry }) => entry.type === 'ballot').length) ballots.push(desk.now)
  }
  const most = Math.max(...ballots.map((at) => ballots.filter((other) => other >= at && other < at + 60_000).length))
  assert.ok(most > 20 && most <= MOST_BALLOTS_IN_A_MINUTE, `${most} ballots in a minute`)
})

test('a real coordinator lets a volunteer that fails every attempt wait longer each time, and says so', async () => {
  // a ballot without an answer would be one more: the volunteer answers, however slow the machine is
  const { url, runs } = await startCoordinator({ timing: { ...QUICK, stateMs: 600_000, formMs: 600_000 } })
  const { id } = await submit(url, smallJob({ volunteers: { min: 1 } }))
  const fake = new FakeVolunteer(url, { obedient: false })
  fake.socket.on('open', () => fake.hello())
  fake.socket.on('message', (data) => {
    const message = JSON.parse(String(data)) as {
      readonly type: string
      readonly fence: number
      readonly generation: number
    }
    const { type, fence, generation } = message
    if (type === 'welcome') setImmediate(() => fake.ready())
    if (type === 'freeze') fake.send({ type: 'state', fence, generation, claim: null })
    if (type === 'form')
      fake.send({
        type: 'abort',
        fence,
        generation,
        step: 1,
        blamed: fake.id,
        why: 'own',
        links: [],
        code: 'shard-corrupt',
        message: 'a shard cannot be fetched',
      })
  })
  const run = runs.find(id)
  assert.ok(run)
  let reason = ''
  while (!/attempts in a row/.test(reason) || run.state.health.consecutiveAborts < 5) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    reason = run.view().reason
  }
  assert.match(reason, /the next attempt is in \d+\.\d s, because \d+ attempts in a row failed/)
  assert.ok(
    run.state.generation <= run.state.health.consecutiveAborts + 1,
    `ballot ${run.state.generation} after ${run.state.health.consecutiveAborts} attempts`,
  )
  fake.close()
})

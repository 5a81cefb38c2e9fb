// Validation blocks are leased like training blocks, while training rests at one version.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type LeaseToken, memberId, type Tally } from '@starling-grid/protocol'
import { agree } from '../src/run/history/validation-voices.ts'
import { summary } from '../src/run/history/validation.ts'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

/** A ring at the end of its first epoch. */
function atEpochEnd(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, blocks: 3, validationBlocks: 20, ...options })
  desk.join(...names)
  desk.run(...names)
  desk.step(1)
  return desk
}

function result(
  desk: Desk,
  name: string,
  lease: LeaseToken | undefined,
  changed: { readonly correct?: number; readonly lossSum?: number; readonly tally?: Tally } = {},
): void {
  assert.ok(lease)
  desk.say(name, {
    type: 'validated',
    version: desk.state.chain.head,
    lease,
    samples: 10,
    targets: 10,
    correct: 5,
    lossSum: 1,
    ...changed,
  })
}

function resultsOf(desk: Desk): number {
  return desk.state.validated.get(desk.state.chain.head.id)?.size ?? 0
}

interface Order {
  readonly to: string
  readonly leases: readonly LeaseToken[]
}

/** Members answer all orders, also those that follow; a liar with its own numbers. Returns blocks computed by each. */
function answerAll(
  desk: Desk,
  lies: Readonly<Record<string, Parameters<typeof result>[3]>> = {},
  first: readonly Order[] = desk.sent('validate'),
): Record<string, number> {
  const computed: Record<string, number> = {}
  const waiting = first.flatMap(({ to, leases }) => leases.map((lease) => ({ to, lease })))
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const { to, lease } = next
    const isLeased = desk.state.validation.now?.leases.get(memberId(to))?.has(lease.block) === true
    if (!isLeased) continue // taken from a member that was outvoted
    result(desk, to, lease, lies[to])
    computed[to] = (computed[to] ?? 0) + 1
    for (const order of desk.sent('validate'))
      waiting.push(...order.leases.map((later) => ({ to: order.to, lease: later })))
  }
  return computed
}

function isConfirmed(desk: Desk): boolean[] {
  return [...(desk.state.validated.get(desk.state.chain.head.id)?.values() ?? [])].map(({ confirmed }) => confirmed)
}

/** Names of those in the last refusals, of a whole play of inputs. */
function refusedDuring(desk: Desk, play: () => void): string[] {
  const refused: string[] = []
  const feed = desk.feed.bind(desk)
  desk.feed = (input) => {
    const effects = feed(input)
    refused.push(...desk.refusals)
    return effects
  }
  play()
  return refused
}

function enter(desk: Desk, networks: Readonly<Record<string, string>>): void {
  for (const [name, network] of Object.entries(networks))
    desk.feed({
      type: 'member-joined',
      samplesPerSecond: 100,
      member: {
        id: memberId(name),
        name,
        client: 'node',
        network,
        adapter: { name: 'none', vendor: 'test', software: true, executor: 'reference' },
      },
    })
  desk.run(...Object.keys(networks))
  desk.step(1)
}

test('one member that makes its numbers up changes no validation, is named, and measures nothing for a while', () => {
  const desk = atEpochEnd(['liar', 'b', 'c'])
  const refused = refusedDuring(desk, () => void answerAll(desk, { liar: { correct: 10, lossSum: 0 } }))
  assert.equal(resultsOf(desk), 20)
  const { correct, lossSum } = totals(desk)
  assert.deepEqual([correct, lossSum], [100, 20], 'what two say')
  assert.ok(isConfirmed(desk).every(Boolean))
  assert.deepEqual(new Set(refused), new Set(['liar digest-mismatch']))
  assert.ok((desk.state.members.get(memberId('liar'))?.noSayUntil ?? 0) > desk.now)
  assert.equal(desk.phase, 'ring', 'it stays a member of the ring')
  assert.ok(desk.members.includes(memberId('liar')))
  desk.step(2)
  assert.ok(!desk.sent('validate').some(({ to }) => to === 'liar'))
})

test('a lease that runs out is longer the next time, so that slow members measure in the end', () => {
  const desk = atEpochEnd(['a', 'b'])
  const granted: number[] = []
  for (let i = 0; i < 4; i++) {
    const leases = [...(desk.state.validation.now?.leases.get(memberId('a'))?.values() ?? [])]
    const deadline = leases[0]?.deadline ?? 0
    granted.push(deadline - desk.now)
    desk.wait(deadline - desk.now + 1)
  }
  const [first = 0] = granted
  assert.deepEqual(
    granted.map((ms) => ms / first),
    [1, 2, 4, 8],
  )
})

function totals(desk: Desk): { readonly correct: number; readonly lossSum: number } {
  let [correct, lossSum] = [0, 0]
  for (const one of desk.state.validated.get(desk.state.chain.head.id)?.values() ?? []) {
    correct += one.correct
    lossSum += one.lossSum
  }
  return { correct, lossSum }
}

test('a block counts when two members measured the same, and each block is computed three times at most', () => {
  const desk = atEpochEnd(['a', 'b', 'c'])
  const computed = answerAll(desk)
  assert.equal(resultsOf(desk), 20)
  assert.ok(isConfirmed(desk).every(Boolean))
  assert.equal(
    Object.values(computed).reduce((a, b) => a + b),
    40,
  )
  const lied = atEpochEnd(['liar', 'b', 'c', 'd'])
  const work = answerAll(lied, { liar: { lossSum: 0 } })
  assert.ok(Object.values(work).reduce((a, b) => a + b) <= 60)
  assert.equal(totals(lied).lossSum, 20)
})

test('numbers that differ by the order of sums are the same', () => {
  const desk = atEpochEnd(['a', 'b'])
  const refused = refusedDuring(desk, () => void answerAll(desk, { b: { lossSum: 1.001, correct: 6 } }))
  assert.ok(isConfirmed(desk).every(Boolean))
  assert.deepEqual(refused, [])
})

test('two members that differ, and no third: nothing is confirmed, and the worse numbers are shown', () => {
  const desk = atEpochEnd(['liar', 'b'])
  const refused = refusedDuring(desk, () => void answerAll(desk, { liar: { lossSum: 0, correct: 10 } }))
  assert.equal(resultsOf(desk), 20, 'the run does not wait for a third')
  assert.ok(isConfirmed(desk).every((one) => !one))
  assert.equal(totals(desk).lossSum, 20)
  assert.deepEqual(refused, [], 'one voice names no other member')
})

test('the result of a member alone counts, unconfirmed', () => {
  const desk = atEpochEnd(['a'])
  answerAll(desk)
  assert.equal(resultsOf(desk), 20)
  assert.ok(isConfirmed(desk).every((one) => !one))
  assert.equal(desk.planned(2).length, 3, 'training goes on')
})

test('members of one network are one voice while a member of another network is there', () => {
  const desk = new Desk({ minVolunteers: 3, blocks: 3, validationBlocks: 20 })
  enter(desk, { sybil: '10.0.0', twin: '10.0.0', honest: '10.0.1' })
  const lie = { lossSum: 0, correct: 10 }
  const refused = refusedDuring(desk, () => void answerAll(desk, { sybil: lie, twin: lie }))
  assert.equal(resultsOf(desk), 20)
  assert.equal(totals(desk).lossSum, 20, 'the lie of two members of one network is not taken')
  assert.ok(isConfirmed(desk).every((one) => !one))
  assert.deepEqual(refused, [], 'and the honest member is not named')
})

test('a member of another network that does not answer keeps none from being confirmed', () => {
  const desk = new Desk({ minVolunteers: 3, blocks: 3, validationBlocks: 16, timing: { stallMs: 1e9 } })
  enter(desk, { a: '10.0.0', b: '10.0.0', mute: '10.0.1' })
  const orders = desk.sent('validate').filter(({ to }) => to !== 'mute')
  answerAll(desk, {}, orders)
  assert.equal(resultsOf(desk), 0, 'the mute one is waited for')
  desk.wait(61_000)
  answerAll(
    desk,
    {},
    desk.sent('validate').filter(({ to }) => to !== 'mute'),
  )
  assert.equal(resultsOf(desk), 16)
  assert.ok(isConfirmed(desk).every(Boolean))
})

test('a member that was outvoted validates again when no other is left', () => {
  const desk = atEpochEnd(['liar', 'b', 'c'], { epochs: 3 })
  answerAll(desk, { liar: { lossSum: 0 } })
  desk.step(2)
  desk.lose('b')
  desk.lose('c')
  desk.run('liar')
  assert.equal(desk.sent('validate')[0]?.to, 'liar')
})

test('all blocks are leased at the end of an epoch, and training goes on when the last is in', () => {
  const desk = atEpochEnd(['a', 'b'])
  const orders = desk.sent('validate')
  assert.deepEqual(
    orders.map(({ to, leases }) => [to, leases.length]),
    [
      ['a', 16],
      ['b', 16],
    ],
  )
  assert.equal(new Set(orders.flatMap(({ leases }) => leases.map(({ block }) => block))).size, 20)
  assert.deepEqual(desk.planned(2), [], 'training rests')
  answerAll(desk, {}, orders)
  assert.equal(resultsOf(desk), 20)
  assert.equal(desk.planned(2).length, 3)
})

test('metrics are those of all blocks together, and sums that no targets have are refused', () => {
  const tally: Tally = { of: 'labels', found: 3, wrong: 1, missed: 2 }
  const desk = atEpochEnd(['a', 'b'])
  const orders = desk.sent('validate')
  const [order] = orders
  assert.ok(order)
  const lie = () => result(desk, order.to, order.leases[0], { tally: { ...tally, missed: 9 } })
  assert.deepEqual(refusedDuring(desk, lie), [`${order.to} message-malformed`])
  answerAll(desk, { a: { tally }, b: { tally } }, orders)
  const { metrics } = summary(desk.state, desk.state.chain.head.id)
  assert.deepEqual(metrics, [
    { name: 'accuracy', value: 0.5 },
    { name: 'F1', value: 6 / 9 },
  ])
})

test('two members whose sums for metrics differ do not confirm each other', () => {
  const base = { samples: 10, targets: 10, correct: 5, lossSum: 1 }
  const tallyOf = (errors: number): Tally => ({ of: 'values', errors, totals: [1], squares: [9] })
  const values = (errors: number) => ({ ...base, tally: tallyOf(errors) })
  assert.ok(agree(values(4), values(4.05)))
  assert.ok(!agree(values(4), values(40)))
  assert.ok(agree(values(4), base), 'older volunteers send none')
})

test('sums for metrics that one member alone counted confirm no metric', () => {
  const tally: Tally = { of: 'labels', found: 5, wrong: 0, missed: 0 }
  const desk = atEpochEnd(['a', 'b'])
  answerAll(desk, { a: { tally } }, desk.sent('validate'))
  const { metrics, confirmed } = summary(desk.state, desk.state.chain.head.id)
  assert.deepEqual([metrics, confirmed], [undefined, true])
})

test('epochs between those that were asked for are not validated', () => {
  const desk = atEpochEnd(['a'], { evaluate: { everyEpochs: 2 } })
  assert.deepEqual(desk.sent('validate'), [])
  desk.step(2)
  assert.equal(desk.sent('validate').length, 1)
})

test('the last version is validated, also where its epoch is none of those that were asked for', () => {
  const desk = atEpochEnd(['a'], { evaluate: { everyEpochs: 2 }, epochs: 1 })
  assert.equal(desk.sent('validate').length, 1)
  assert.equal(desk.state.finished, undefined)
})

test('blocks of a member that leaves are validated by others, and its measurements still count', () => {
  const desk = atEpochEnd(['a', 'b'])
  const [first] = desk.sent('validate')
  result(desk, 'a', first?.leases[0])
  desk.lose('a')
  desk.run('b')
  assert.deepEqual(
    desk.sent('validate').map(({ to, leases }) => [to, leases.length]),
    [['b', 16]],
  )
  answerAll(desk)
  assert.equal(resultsOf(desk), 20)
  assert.equal(isConfirmed(desk).filter(Boolean).length, 1)
})

test('a result counts once, from the holder of the lease, and only when it can be true', () => {
  const desk = atEpochEnd(['a', 'b'])
  const lease = desk.sent('validate')[0]?.leases[0]
  const voices = (): number => desk.state.validation.now?.voices.get(lease?.block ?? assert.fail())?.length ?? 0
  result(desk, 'b', lease)
  assert.deepEqual(desk.refusals, ['b lease-stale'])
  result(desk, 'a', lease, { correct: 11 })
  assert.deepEqual(desk.refusals, ['a message-malformed'])
  result(desk, 'a', lease)
  result(desk, 'a', lease)
  assert.deepEqual(desk.refusals, ['a lease-stale'])
  assert.equal(voices(), 1)
})

test('a member that lets its lease run out is passed over while others answer', () => {
  const desk = atEpochEnd(['a', 'b', 'c'], { validationBlocks: 16, timing: { stallMs: 1e9 } })
  const asked = (): string[] => desk.sent('validate').map(({ to }) => to)
  assert.deepEqual(asked(), ['a', 'b'])
  desk.wait(61_000)
  assert.deepEqual(asked(), ['c'])
  desk.wait(61_000)
  assert.deepEqual(asked(), ['a', 'b'], 'when all failed, all are tried in turn')
})

test('the last version is validated before the run ends', () => {
  const desk = atEpochEnd(['a'], { epochs: 1, validationBlocks: 1 })
  const { head } = desk.state.chain
  const [order] = desk.sent('validate')
  desk.feed({ type: 'uploaded', member: memberId('a'), version: head, blob: hashOf('state'), bytes: 1 })
  assert.equal(desk.state.finished, undefined)
  result(desk, 'a', order?.leases[0])
  assert.equal(desk.phase, 'finished')
})

test('blocks that a member gives back go to another at once; it rests longer each time, and is asked again', () => {
  const timing = { stallMs: 1e9, leaseMinMs: 1e9 }
  const desk = atEpochEnd(['a', 'b', 'c'], { validationBlocks: 16, timing })
  const giveBack = (name: string, leases: readonly LeaseToken[]): void =>
    void desk.say(name, { type: 'gave-back', leases: [...leases], code: 'coordinator-lost', message: 'no shard' })
  const granted = (): [string, LeaseToken[]][] => desk.sent('validate').map(({ to, leases }) => [to, leases])
  const [[first, leases = []] = []] = granted()
  assert.equal(first, 'a')
  giveBack('c', leases)
  assert.deepEqual(granted(), [], 'only the holder gives back')
  giveBack('a', leases)
  assert.deepEqual(
    granted().map(([to, { length }]) => [to, length]),
    [['c', 16]],
  )
  giveBack('c', granted()[0]?.[1] ?? [])
  assert.deepEqual(granted(), [], 'both rest')
  desk.wait(1001)
  assert.equal(granted()[0]?.[0], 'a')
  giveBack('a', granted()[0]?.[1] ?? [])
  assert.equal(granted()[0]?.[0], 'c', 'which rested meanwhile')
  giveBack('c', granted()[0]?.[1] ?? [])
  desk.wait(1001)
  assert.deepEqual(granted(), [], 'twice as long')
  desk.wait(1000)
  assert.equal(granted()[0]?.[0], 'a')
})

test("when no ring member answers, blocks go to members outside it, with the version's checkpoint", () => {
  const desk = atEpochEnd(['a'], { timing: { leaseMaxMs: 1000, leaseMinMs: 500 } })
  assert.deepEqual(
    desk.sent('validate').map(({ to }) => to),
    ['a'],
  )
  const { head } = desk.state.chain
  desk.feed({
    type: 'uploaded',
    member: [...desk.state.members.keys()][0] ?? assert.fail(),
    version: head,
    blob: hashOf('state'),
    bytes: 1,
  })
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, head.v)
  desk.join('b')
  const asked = new Set<string>()
  for (let i = 0; i < 10 && desk.phase === 'ring'; i++) {
    desk.wait(400)
    for (const { to } of desk.sent('validate')) asked.add(to)
  }
  assert.ok(asked.has('b'), `asked ${[...asked].join(', ')} in phase ${desk.phase}`)
})

/** Two members, an epoch of twelve steps, and a validation after every fifth. */
function everyFifth(earlier?: Desk): Desk {
  const options = { blocks: 12, batchBlocks: 1, validationBlocks: 2, evaluate: { everySteps: 5 }, minVolunteers: 2 }
  const desk = new Desk(options, earlier)
  desk.join('a', 'b')
  desk.run('a', 'b')
  return desk
}

test('a ring plans up to the step that is validated, in the midst of an epoch, and goes on when it is', () => {
  const desk = everyFifth()
  assert.deepEqual([desk.planned(5).length, desk.planned(6).length], [1, 0])
  for (let v = 1; v <= 5; v++) desk.step(v)
  assert.equal(desk.sent('validate').length, 2)
  assert.deepEqual(desk.planned(6), [], 'training rests')
  answerAll(desk)
  assert.deepEqual([desk.planned(6).length, desk.planned(10).length, desk.planned(11).length], [1, 1, 0])
  for (let v = 6; v <= 10; v++) desk.step(v)
  answerAll(desk)
  for (let v = 11; v <= 12; v++) desk.step(v)
  assert.deepEqual(desk.sent('validate'), [], 'the end of an epoch is no mark')
  assert.deepEqual(
    desk.state.evaluations.map(({ version, confirmed }) => [version.v, confirmed]),
    [
      [5, true],
      [10, true],
    ],
  )
})

test('a coordinator that starts again at the step that is validated validates it before it plans another', () => {
  const before = everyFifth()
  for (let v = 1; v <= 5; v++) before.step(v)
  before.checkpoint()
  const desk = everyFifth(before)
  assert.deepEqual(desk.planned(6), [])
  assert.ok(desk.sent('validate').length > 0 || desk.wait(300).length > 0)
  answerAll(desk)
  assert.equal(desk.state.evaluations.at(-1)?.version.v, 5)
  assert.equal(desk.planned(6).length, 1)
})

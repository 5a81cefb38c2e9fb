// A running generation: when a step is committed (R11), what is planned (R12, R13), what ends it (R2).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applyEntry } from '@starling-grid/coordinator/run'
import { memberId, sha256Name, type StepRecord, trainingBlock } from '@starling-grid/protocol'
import { Desk, type DeskOptions, versionAfter, hashOf } from './run-desk.ts'

function ringOf(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, ...options })
  desk.join(...names)
  desk.run(...names)
  return desk
}

test('a step is committed when all members hold it', () => {
  const desk = ringOf(['a', 'b'])
  desk.hold('a', desk.record(1))
  assert.equal(desk.state.chain.head.v, 0)
  desk.hold('b', desk.record(1))
  assert.equal(desk.journalled('commit').length, 1)
  assert.equal(desk.state.chain.head.v, 1)
})

test('a step is committed when one member holds the next, which needs a contribution of all', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const [first, second] = [desk.record(1), desk.record(2)]
  desk.hold('a', first)
  desk.hold('b', first)
  assert.equal(desk.state.chain.head.v, 0)
  desk.hold('a', second)
  assert.equal(desk.state.chain.head.v, 1)
})

test('the second HELD may come before the first', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const [first, second] = [desk.record(1), desk.record(2)]
  desk.hold('a', second)
  desk.hold('b', first)
  assert.equal(desk.state.chain.head.v, 0)
  desk.hold('a', first)
  assert.equal(desk.state.chain.head.v, 1)
})

test('one member that says step after step before all others commits none of them by itself', () => {
  for (const names of [
    ['liar', 'b'],
    ['liar', 'b', 'c'],
  ]) {
    const desk = ringOf(names)
    for (const v of [1, 2, 3]) desk.hold('liar', wrong(desk, v))
    assert.equal(desk.state.chain.head.v, 0, `in a ring of ${names.length}`)
    for (const name of names.slice(1)) desk.hold(name, desk.record(1))
    assert.ok(desk.refusals.includes('liar digest-mismatch'))
    assert.equal(desk.state.chain.head.v, 0, 'nothing of the step before the ballot')
  }
})

const wrong = (desk: Desk, v: number): StepRecord => ({ ...desk.record(v), gradDigest: sha256Name('0'.repeat(64)) })

test('threat 35: two members that hold different bytes for a step are both told, and a ballot opens', () => {
  const desk = ringOf(['a', 'b'])
  desk.hold('a', desk.record(1))
  desk.hold('b', wrong(desk, 1))
  assert.deepEqual(desk.refusals, ['a digest-mismatch', 'b digest-mismatch'])
  assert.equal(desk.phase, 'freeze')
})

test('threat 35: of three members the one with other bytes is named, and nothing of the step is committed', () => {
  const desk = ringOf(['a', 'b', 'c'])
  desk.hold('b', wrong(desk, 1))
  desk.hold('a', desk.record(1))
  assert.equal(desk.phase, 'ring', 'the third is heard')
  desk.hold('c', desk.record(2))
  desk.hold('c', desk.record(1))
  assert.deepEqual(desk.refusals, ['b digest-mismatch'])
  assert.equal(desk.phase, 'freeze')
  assert.equal(desk.state.chain.head.v, 0)
})

test('who does not say what it holds of a disputed step is not waited for long', () => {
  const desk = ringOf(['a', 'b', 'c'])
  desk.hold('b', wrong(desk, 1))
  desk.hold('a', desk.record(1))
  desk.wait(1001)
  assert.deepEqual(desk.refusals, ['b digest-mismatch', 'a digest-mismatch'])
  assert.equal(desk.phase, 'freeze')
})

test('of different bytes for the same step those go on that most members hold', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const lie = wrong(desk, 1)
  const truth = desk.record(1)
  desk.hold('a', lie)
  desk.hold('b', truth)
  desk.hold('c', truth)
  desk.answer('a', [lie])
  desk.answer('b', [truth])
  desk.answer('c', [truth])
  const [form] = desk.sent('form')
  assert.equal(form?.target.id, versionAfter(desk.state.chain.head, [truth]).id)
  assert.deepEqual(form?.sources, ['b', 'c'])
})

test('a member whose bytes differ from those of its neighbours in two orders of the ring is left out', () => {
  const desk = ringOf(['a', 'b', 'c', 'd'], { timing: { excludeMs: 60_000, abortsBeforeFallback: 100 } })
  for (let v = 1; desk.members.includes(memberId('b')) && v < 6; v++) {
    const [lie, truth] = [wrong(desk, v), desk.record(v)]
    const { members } = desk
    for (const id of members) desk.hold(id, id === 'b' ? lie : truth)
    for (const id of members) desk.answer(id, [id === 'b' ? lie : truth])
    for (const id of desk.members) desk.confirm(id)
  }
  assert.deepEqual([...desk.members].sort(), ['a', 'c', 'd'])
})

test('a record that does not hold its planned blocks, or names another generation, is refused', () => {
  const desk = ringOf(['a', 'b'])
  desk.hold('a', desk.record(1, desk.planned(1).slice(1)))
  assert.deepEqual(desk.refusals, ['a message-unexpected'])
  desk.hold('a', { ...desk.record(1), generation: 99 })
  assert.deepEqual(desk.refusals, ['a message-unexpected'])
  desk.hold('a', desk.record(7, desk.planned(1)))
  assert.deepEqual(desk.refusals, ['a message-unexpected'])
})

test('assignments follow measured speeds with the next plan, and hidden tabs get half', () => {
  const desk = ringOf(['a', 'b'], { blocks: 300, batchBlocks: 3 })
  const speed = (name: string, samplesPerSecond: number, hidden = false) =>
    desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond, hidden })
  const commit = (count: number) => {
    for (let i = 0; i < count; i++) {
      desk.now += 1000
      desk.step(desk.state.chain.head.v + 1)
      const [plan] = desk.sent('plan')
      if (plan !== undefined) return plan
    }
    return undefined
  }
  speed('a', 104)
  assert.equal(commit(9)?.weights, undefined, 'some percent are no news')
  speed('a', 160)
  assert.deepEqual(
    commit(40)?.weights,
    desk.members.map((id) => (id === 'a' ? 160 : 100)),
  )
  speed('a', 160, true)
  assert.deepEqual(
    commit(40)?.weights,
    desk.members.map((id) => (id === 'a' ? 80 : 100)),
  )
})

test('a member that claims enormous speed gets twice the usual among the others, in all plans', () => {
  const desk = ringOf(['a', 'b', 'liar'], { blocks: 300, batchBlocks: 4 })
  desk.feed({ type: 'speed', member: memberId('liar'), samplesPerSecond: 1e12 })
  desk.accuse('a', 'b', 'closed')
  desk.answer('a')
  desk.answer('b')
  desk.answer('liar')
  assert.deepEqual(desk.sent('form')[0]?.weights, [100, 100, 200])
  for (const name of ['a', 'b', 'liar']) desk.confirm(name)
  for (let v = 1; v <= 40; v++) {
    desk.now += 1000
    desk.step(v)
    assert.ok(desk.sent('plan').every(({ weights }) => weights === undefined))
  }
})

test('a member that is faster than twice what is usual gets what its committed steps show', () => {
  const desk = ringOf(['slow', 'slow2', 'fast'], { blocks: 4000, batchBlocks: 10, blockSamples: 100 })
  desk.feed({ type: 'speed', member: memberId('fast'), samplesPerSecond: 800 })
  for (let v = 1; v <= 300; v++) {
    const { phase } = desk.state
    if (phase.type !== 'ring') break
    const weights = phase.planWeights.get(v) ?? phase.weights
    const blocks = desk.planned(v).length
    const part = (rank: number): number =>
      (blocks * (weights[rank] ?? 0)) / weights.reduce((sum, share) => sum + share, 0)
    // a step takes as long as its slowest member
    desk.now += 1000 * Math.max(...desk.members.map((id, rank) => (100 * part(rank)) / (id === 'fast' ? 800 : 100)))
    const record = { ...desk.record(v), samples: 100 * blocks }
    for (const id of desk.members) desk.hold(id, record)
  }
  const { phase } = desk.state
  assert.ok(phase.type === 'ring')
  assert.deepEqual(
    [...phase.planWeights.values()].at(-1),
    desk.members.map((id) => (id === 'fast' ? 800 : 100)),
  )
})

test('a plan lasts about a minute, so that slow steps are not bound to old assignments', () => {
  const desk = ringOf(['a', 'b'], { blocks: 300, batchBlocks: 3 })
  for (let v = 1; v <= 12; v++) {
    desk.now += 15_000
    desk.step(v)
  }
  const { phase, chain } = desk.state
  assert.ok(phase.type === 'ring' && phase.plannedTo - chain.head.v <= 4)
})

test('a block that was set aside is in no plan', () => {
  const desk = new Desk({ blocks: 3, batchBlocks: 3 })
  applyEntry(desk.state, { type: 'quarantine', block: trainingBlock(0, 1) }, 0)
  desk.join('a')
  desk.run('a')
  assert.deepEqual(desk.planned(1).toSorted(), [trainingBlock(0, 0), trainingBlock(0, 2)])
})

test('the plan ends with the epoch, and the next is planned when this one is on the chain', () => {
  const desk = ringOf(['a'], { blocks: 7, batchBlocks: 3 })
  const plan = [1, 2, 3].map((v) => desk.planned(v))
  assert.deepEqual(
    plan.map((blocks) => blocks.length),
    [3, 3, 1],
  )
  assert.equal(new Set(plan.flat()).size, 7)
  assert.deepEqual(desk.planned(4), [])
  desk.step(1)
  desk.step(2)
  assert.deepEqual(desk.planned(4), [])
  desk.step(3)
  assert.deepEqual(
    desk.sent('plan').flatMap(({ steps }) => steps.map(({ step }) => step)),
    [4, 5, 6],
  )
  assert.ok(desk.planned(4).every((block) => block.startsWith('1:')))
})

test('who is present changes the split and not the batch', () => {
  const [alone, three] = [ringOf(['a']), ringOf(['a', 'b', 'c'])]
  assert.deepEqual(alone.planned(1), three.planned(1))
})

test('blocks of a step that was not committed are planned again, in the same order', () => {
  const desk = ringOf(['a', 'b'])
  desk.step(1)
  const second = desk.planned(2)
  desk.lose('b')
  desk.run('a')
  assert.deepEqual(desk.planned(2), second)
})

test('a long epoch is planned a window ahead and topped up', () => {
  const desk = ringOf(['a'], { blocks: 200, batchBlocks: 1, epochs: 1 })
  const commit = (last: number): void => {
    for (let v = desk.state.chain.head.v + 1; v <= last; v++) {
      desk.now += 10
      desk.step(v)
    }
  }
  const plan = (): unknown => desk.sent('plan').map(({ steps }) => [steps.at(0)?.step, steps.at(-1)?.step])
  assert.deepEqual([desk.planned(16).length, desk.planned(17).length], [1, 0], 'no step was measured yet')
  commit(2)
  assert.deepEqual(plan(), [[17, 66]])
  commit(34)
  assert.deepEqual(plan(), [[67, 98]])
  assert.deepEqual(
    desk.sent('ack').map(({ committed }) => committed.v),
    [34],
  )
})

test('members are told of a commit once, however long the next step takes', () => {
  const desk = ringOf(['a', 'b'], { blocks: 200, batchBlocks: 1, epochs: 1 })
  let told = 0
  for (let v = 1; v <= 8; v++) {
    desk.step(v)
    told += desk.sent('ack').filter(({ committed }) => committed.v === 8).length
  }
  for (let i = 0; i < 40; i++) {
    desk.wait(200)
    told += desk.sent('ack').length
  }
  assert.equal(told, 2, 'each of the two once')
})

test('the run ends after stop.steps', () => {
  const desk = ringOf(['a'], { stop: { steps: 1 } })
  assert.deepEqual(desk.planned(2), [])
  desk.step(1)
  assert.deepEqual(
    desk.sent('checkpoint-at').map(({ v }) => v),
    [1],
  )
})

test('a run that its owner ends finishes its epoch and begins no other, also after a restart', () => {
  const desk = ringOf(['a'], { epochs: 5 })
  desk.step(1)
  desk.feed({ type: 'end-with-epoch' })
  desk.feed({ type: 'end-with-epoch' })
  assert.equal(desk.entries.filter(({ entry }) => entry.type === 'epochs').length, 1)
  desk.step(2)
  assert.deepEqual(desk.planned(3), [])
  assert.deepEqual([desk.state.chain.doneIn(0), desk.state.chain.head.v], [6, 2])
  assert.deepEqual(
    desk.sent('checkpoint-at').map(({ v }) => v),
    [2],
  )
  assert.equal(new Desk({ epochs: 5 }, desk).state.config.epochs, 1)
})

test('planned steps that make no progress open a ballot', () => {
  const desk = ringOf(['a', 'b'])
  desk.wait(60_000)
  assert.equal(desk.phase, 'ring')
  desk.wait(1)
  assert.equal(desk.phase, 'freeze')
})

test('newcomers are admitted together, some time after the last of them came, between two steps', () => {
  const desk = ringOf(['a'])
  desk.now += 5000
  desk.join('b')
  desk.now += 1900
  desk.join('c')
  desk.wait(1900)
  assert.deepEqual(desk.sent('last-step'), [])
  desk.learn('b', 'c')
  desk.wait(200)
  assert.deepEqual(
    desk.sent('last-step').map(({ step }) => step),
    [2],
  )
  desk.step(1)
  assert.equal(desk.phase, 'ring')
  desk.step(2)
  assert.equal(desk.phase, 'freeze')
  desk.run('a', 'b', 'c')
  assert.deepEqual(desk.members, ['a', 'b', 'c'])
})

test('newcomers are admitted although further ones arrive all the time', () => {
  const desk = ringOf(['a'])
  for (const name of ['b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']) {
    desk.join(name)
    desk.wait(1500)
    desk.learn(name)
  }
  desk.wait(3001) // no step ends
  assert.equal(desk.phase, 'freeze')
})

test('newcomers do not wait for a step that does not end', () => {
  const desk = ringOf(['a'])
  desk.join('b')
  desk.admit()
  assert.equal(desk.phase, 'freeze')
})

test('an abort opens a ballot; one from outside the ring does not', () => {
  const desk = ringOf(['a', 'b'])
  desk.join('c')
  desk.say('c', {
    type: 'abort',
    step: 1,
    blamed: null,
    why: 'stalled',
    links: [],
    code: 'reduce-timeout',
    message: 'test',
  })
  assert.equal(desk.phase, 'ring')
  desk.say('b', {
    type: 'abort',
    step: 1,
    blamed: null,
    why: 'stalled',
    links: [],
    code: 'reduce-timeout',
    message: 'test',
  })
  assert.equal(desk.phase, 'freeze')
})

test('newcomers wait for the end of a step, and no member loses a step to them', () => {
  const desk = ringOf(['a', 'b'])
  desk.join('c')
  desk.wait(200)
  desk.learn('c')
  desk.wait(59_000)
  const [until] = desk.sent('last-step')
  assert.equal(until?.step, 2)
  assert.equal(desk.phase, 'ring')
  for (const v of [1, 2]) for (const name of ['a', 'b']) desk.hold(name, desk.record(v))
  assert.equal(desk.phase, 'freeze')
  assert.equal(desk.state.chain.head.v, 2)
})

test('a member that asks to leave goes when the step is committed, not before', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const dismissed = () => desk.effects.filter((effect) => effect.type === 'dismiss')
  desk.feed({ type: 'member-leaving', member: memberId('c') })
  assert.deepEqual(dismissed(), [])
  for (const v of [1, 2]) for (const name of ['a', 'b', 'c']) desk.hold(name, desk.record(v))
  assert.deepEqual(dismissed(), [{ type: 'dismiss', member: 'c' }])
})

test('a member that asks to leave goes after a while even if the step does not end', () => {
  const desk = ringOf(['a', 'b'])
  desk.feed({ type: 'member-leaving', member: memberId('b') })
  desk.wait(4000)
  assert.deepEqual(
    desk.effects.filter((effect) => effect.type === 'dismiss'),
    [{ type: 'dismiss', member: 'b' }],
  )
})

test('a member on which no other depends leaves at once', () => {
  const desk = ringOf(['a'])
  desk.feed({ type: 'member-leaving', member: memberId('a') })
  assert.deepEqual(desk.effects, [{ type: 'dismiss', member: 'a' }])
})

test('a local round that is repeated leaves its members the blocks that they learned from (A7)', () => {
  const desk = ringOf(['a', 'b'], { mode: 'local', roundSteps: 2, blocks: 24, batchBlocks: 3 })
  const planned = desk.planned(1)
  const base = desk.state.chain.head
  desk.accuse('a', 'b', 'closed')
  desk.say('a', { type: 'state', claim: { base, records: [] }, consumed: { base, blocks: planned.slice(3, 5) } })
  desk.say('b', {
    type: 'state',
    claim: { base, records: [] },
    consumed: { base, blocks: [...planned.slice(4), 'v:1' as never] },
  })
  for (const name of ['a', 'b']) desk.confirm(name)
  const [start] = desk.sent('start')
  assert.deepEqual(start?.plan[0]?.blocks, planned, 'the set of blocks is the same (R12)')
  const kept = new Map(desk.members.map((id, rank) => [String(id), start?.plan[0]?.kept?.[rank]]))
  assert.deepEqual([...(kept.get('a') ?? []), ...(kept.get('b') ?? [])].sort(), planned.slice(3).sort())
  assert.equal(start?.plan[1]?.kept, undefined)
})

test('blocks that were learned from another version belong to no member', () => {
  const desk = ringOf(['a'], { mode: 'local', roundSteps: 2, blocks: 24, batchBlocks: 3 })
  const blocks = desk.planned(1).slice(0, 2)
  const base = { ...desk.state.chain.head, v: 1 }
  desk.accuse('a', 'a', 'own')
  desk.say('a', {
    type: 'state',
    claim: { base: desk.state.chain.head, records: [] },
    consumed: { base: { ...base, id: 'f'.repeat(64) as never }, blocks },
  })
  desk.confirm('a')
  assert.equal(desk.sent('start')[0]?.plan[0]?.kept, undefined)
})

test('threat 35: a second disputed step does not hide the first: who held other bytes for that is named', () => {
  const desk = new Desk({ minVolunteers: 3, blocks: 30 })
  desk.join('a', 'b', 'c')
  desk.run('a', 'b', 'c')
  const other = (v: number) => ({ ...desk.record(v), gradDigest: hashOf(`other sum of ${v}`) })
  desk.hold('a', desk.record(1))
  desk.hold('b', other(1))
  desk.hold('a', desk.record(2))
  desk.hold('b', other(2))
  desk.hold('c', desk.record(1))
  assert.deepEqual(desk.refusals, ['b digest-mismatch'])
  assert.deepEqual([desk.state.chain.head.v, desk.phase], [0, 'freeze'])
})

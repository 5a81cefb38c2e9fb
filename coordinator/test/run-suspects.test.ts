// A job that is forced to `mode: ring` or `local` finds a block that always fails, sets it aside, and trains all
// others.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assignmentsOfStep, type BlockId, memberId } from '@starling-grid/protocol'
import { Desk, type DeskOptions } from './run-desk.ts'

interface Trained {
  readonly desk: Desk
  readonly notes: readonly string[]
  readonly aborts: number
}

/**
 * Honest members train until the run ends or the time is up. A member with a bad block in its part gives up the step.
 */
function train(names: readonly string[], bad: readonly BlockId[], options: DeskOptions = {}): Trained {
  const desk = new Desk({ minVolunteers: names.length, blocks: 12, batchBlocks: 4, epochs: 2, ...options })
  desk.join(...names)
  const notes: string[] = []
  const hear = (): void => void notes.push(...desk.effects.flatMap((one) => (one.type === 'note' ? [one.text] : [])))
  let aborts = 0
  for (let ticks = 0; ticks < 20_000 && desk.state.finished === undefined; ticks++) {
    desk.wait(200)
    hear()
    const { phase } = desk.state
    if (phase.type === 'freeze') {
      for (const { id } of desk.state.members.values())
        if (!phase.claims.has(id)) desk.answer(id, desk.state.chain.head.v === 0 ? undefined : [])
    } else if (phase.type === 'form') {
      for (const id of phase.members) if (desk.phase === 'form') desk.confirm(id)
    } else if (phase.type === 'ring') aborts += step(desk, bad)
    hear()
  }
  return { desk, notes, aborts }
}

function step(desk: Desk, bad: readonly BlockId[]): number {
  const { phase, chain } = desk.state
  const v = chain.head.v + 1
  const blocks = desk.planned(v)
  if (phase.type !== 'ring' || blocks.length === 0) {
    if (phase.type === 'ring') desk.checkpoint()
    return 0
  }
  const parts = assignmentsOfStep({ blocks }, phase.planWeights.get(v) ?? phase.weights)
  const rank = parts.findIndex((part) => part.some((block) => bad.includes(block)))
  const id = phase.members[rank]
  if (id === undefined) {
    desk.step(v)
    return 0
  }
  desk.say(id, {
    type: 'abort',
    step: v,
    blamed: memberId(id),
    why: 'own',
    links: [],
    code: 'gradient-not-finite',
    message: 'test',
  })
  return 1
}

function blocksOf({ desk }: Trained): BlockId[] {
  return desk.state.chain.records.flatMap(({ blocks }) => [...blocks])
}

for (const names of [['a'], ['a', 'b'], ['a', 'b', 'c'], ['a', 'b', 'c', 'd']])
  test(`a ring of ${names.length} sets a block aside that always fails, and trains every other block once`, () => {
    const bad = '0:5' as BlockId
    const trained = train(names, [bad])
    assert.deepEqual([...trained.desk.state.quarantined], [bad])
    const blocks = blocksOf(trained)
    assert.deepEqual([blocks.length, new Set(blocks).size, blocks.includes(bad)], [23, 23, false])
    assert.equal(trained.desk.phase, 'finished')
    assert.match(trained.notes.join('\n'), /its 4 blocks are tried one at a time[^]*block 0:5 failed/)
    assert.ok(trained.aborts < 20, `${trained.aborts} tries`)
    const { members } = trained.desk.state
    assert.ok([...members.values()].every(({ excludedUntil }) => excludedUntil <= trained.desk.now))
  })

test('local rounds set a block aside that always fails, and train every other block once', () => {
  const bad = '0:5' as BlockId
  const trained = train(['a', 'b', 'c'], [bad], { mode: 'local', batchBlocks: 2, roundSteps: 3 })
  assert.deepEqual([...trained.desk.state.quarantined], [bad])
  const blocks = blocksOf(trained)
  assert.deepEqual([blocks.length, new Set(blocks).size, blocks.includes(bad)], [23, 23, false])
  assert.equal(trained.desk.phase, 'finished')
})

test('several bad blocks of a step, and a batch of one block', () => {
  const bad = ['0:1', '0:5', '0:7'] as BlockId[]
  for (const batchBlocks of [1, 4]) {
    const trained = train(['a', 'b', 'c'], bad, { batchBlocks })
    assert.deepEqual([...trained.desk.state.quarantined].toSorted(), bad)
    assert.equal(new Set(blocksOf(trained)).size, 21)
  }
})

test('where every block fails no block is set aside for it: the state or the members are at fault', () => {
  const all = Array.from({ length: 12 }, (_, i) => `0:${i}` as BlockId)
  const trained = train(['a', 'b', 'c'], all, { epochs: 1, timing: { retryMaxMs: 1000 } })
  assert.deepEqual([trained.desk.state.quarantined.size, blocksOf(trained)], [0, []])
})

test('for failures of one member, which is left out for them, nothing is tried alone', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 12, batchBlocks: 4 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  const plan = desk.planned(1)
  for (let i = 0; i < 3; i++) {
    desk.accuse('a', 'a', 'own')
    for (const name of ['a', 'b']) desk.answer(name)
    for (const name of desk.members) desk.confirm(name)
  }
  assert.deepEqual([desk.members, desk.planned(1)], [['b'], plan])
})

test('a run that may fall back keeps its plan: async mode finds the block', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 12, batchBlocks: 4, mode: 'auto' })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (let i = 0; i < 2; i++) {
    desk.accuse('a', 'a', 'own')
    desk.run('a', 'b')
  }
  assert.equal(desk.planned(1).length, 4)
})

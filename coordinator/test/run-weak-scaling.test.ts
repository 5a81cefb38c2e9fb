// Weak scaling: the batch grows with the ring and the learning rate with the batch; both are in the record.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StepScaling } from '@starling-grid/protocol'
import fc from 'fast-check'
import { nextScale } from '../src/run/ring/weak-scaling.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const LR = 0.5
const WEAK: DeskOptions = {
  blocks: 24,
  batchBlocks: 2,
  epochs: 2,
  weak: { warmup: 4, optimizer: { type: 'sgd', lr: LR } },
  timing: { admitMs: 1000, stallMs: 1e9 },
}

function ringOf(names: readonly string[], options: DeskOptions = {}, earlier?: Desk): Desk {
  const desk = new Desk({ ...WEAK, minVolunteers: names.length, ...options }, earlier)
  desk.join(...names)
  desk.run(...names)
  return desk
}

/** Commits steps up to v; what their records say. */
function trainTo(desk: Desk, v: number): StepScaling[] {
  const made: StepScaling[] = []
  while (desk.state.chain.head.v < v) {
    const next = desk.state.chain.head.v + 1
    desk.step(next)
    assert.equal(desk.state.chain.head.v, next)
    made.push(desk.state.chain.record(next)?.scaling ?? assert.fail())
  }
  return made
}

test('each member has the blocks of the job, and the rate rises to that of the batch in the warm-up', () => {
  const desk = ringOf(['a', 'b', 'c'])
  assert.equal(desk.planned(1).length, 6)
  const made = trainTo(desk, 5)
  assert.deepEqual(
    made.map(({ scale }) => scale),
    [1.75, 2.5, 3, 3, 3],
  )
  for (const { batch, scale, lr } of made) assert.deepEqual([batch, lr], [6, scale * LR])
})

test('a member that leaves takes its part of the batch and of the rate along at once', () => {
  const desk = ringOf(['a', 'b', 'c'])
  trainTo(desk, 2)
  desk.lose('c')
  desk.run('a', 'b')
  assert.equal(desk.planned(3).length, 4)
  assert.deepEqual(trainTo(desk, 3), [{ batch: 4, scale: 2, lr: 2 * LR }])
})

test('a member that comes lets the batch grow at once, and the rate step by step from where it was', () => {
  const desk = ringOf(['a', 'b'], { minVolunteers: 2 })
  trainTo(desk, 4)
  desk.join('c')
  desk.admit()
  desk.run('a', 'b', 'c')
  assert.equal(desk.planned(5).length, 6)
  assert.deepEqual(
    trainTo(desk, 6).map(({ batch, scale }) => [batch, scale]),
    [
      [6, 2.75],
      [6, 3],
    ],
  )
})

test('an epoch trains every block once as members come and go; a short last step keeps its rate', () => {
  const desk = ringOf(['a', 'b', 'c'], { blocks: 16 })
  trainTo(desk, 1)
  desk.lose('c')
  desk.run('a', 'b')
  const made = trainTo(desk, 4) // 6, then 4, 4 and 2
  const blocks = desk.state.chain.records.flatMap((record) => record.blocks)
  assert.deepEqual([blocks.length, new Set(blocks).size], [16, 16])
  assert.deepEqual(made.at(-1), { batch: 4, scale: 2, lr: 2 * LR })
})

test('a restarted coordinator goes on with the rate of the last record', () => {
  const before = ringOf(['a', 'b', 'c', 'd'])
  trainTo(before, 2)
  const desk = ringOf(['a', 'b', 'c', 'd'], {}, before)
  assert.deepEqual(trainTo(desk, 3)[0]?.scale, 4, '2, 3, then 4 of 4')
})

test('a record with another batch or rate than its plan is refused', () => {
  const desk = ringOf(['a', 'b'])
  const record = desk.record(1)
  for (const scaling of [undefined, { batch: 4, scale: 2, lr: 99 }, { batch: 6, scale: 2, lr: 1 }]) {
    const { scaling: _, ...rest } = record
    desk.hold('a', scaling === undefined ? rest : { ...rest, scaling })
    assert.deepEqual(desk.refusals, ['a message-unexpected'])
  }
  desk.step(1)
  assert.equal(desk.state.chain.head.v, 1)
})

test('a claim of a step with another batch or rate than its generation had is no version', () => {
  const ballot = (change: Partial<StepScaling> | null): string => {
    const desk = ringOf(['a', 'b', 'c'])
    const { scaling, ...rest } = desk.record(1)
    const claimed = change === null || scaling === undefined ? rest : { ...rest, scaling: { ...scaling, ...change } }
    desk.lose('c')
    for (const name of ['a', 'b']) desk.answer(name, [claimed])
    const { phase } = desk.state
    return phase.type === 'form' ? `version ${phase.target.v}` : phase.type
  }
  assert.equal(ballot({}), 'version 1')
  for (const change of [null, { lr: 99 }, { scale: 2, lr: 2 * LR }, { batch: 4 }, { batch: 1 }])
    assert.equal(ballot(change), 'version 0', JSON.stringify(change))
})

test('the schedule goes by what was trained, in batches of one member', () => {
  const optimizer = { type: 'sgd', lr: 1, schedule: { type: 'linear', to: 0, steps: 24 } } as const
  const desk = ringOf(['a', 'b', 'c'], { weak: { warmup: 0, optimizer } })
  assert.deepEqual(
    trainTo(desk, 4).map(({ lr }) => lr),
    [3, 3 * (1 - 3 / 24), 3 * (1 - 6 / 24), 3 * (1 - 9 / 24)],
  )
})

test('a ring with more members than a step has blocks for takes the most that a step may have', () => {
  const desk = ringOf(['a', 'b', 'c'], { blocks: 600, batchBlocks: 100 })
  assert.equal(desk.planned(1).length, 256)
  assert.deepEqual(trainTo(desk, 5).at(-1), { batch: 256, scale: 2.56, lr: 2.56 * LR })
})

test('the rate is never above the batch, and reaches it within the steps of the warm-up', () => {
  fc.assert(
    fc.property(
      fc.double({ min: 1, max: 256, noNaN: true }),
      fc.integer({ min: 1, max: 256 }),
      fc.integer({ min: 0, max: 500 }),
      (from, times, warmup) => {
        let scale = from
        for (let step = 0; step <= warmup; step++) {
          scale = nextScale(scale, times, warmup)
          assert.ok(scale > 0 && scale <= times)
        }
        assert.equal(scale, times)
      },
    ),
  )
})

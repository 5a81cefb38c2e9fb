// Which checkpoints a job keeps: the best, the newest and those of every so many steps. What rewinds, damage, restarts
// and snapshots make of them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type KeepRule, type LeaseToken, memberId, type NamedMetric, type VersionRef } from '@starling-grid/protocol'
import { createRunState } from '../src/run/create.ts'
import { MOST_KEPT } from '../src/run/history/kept.ts'
import { readRun } from '../src/run/history/snapshot.ts'
import { type RunState, writtenRun } from '../src/run/index.ts'
import { applyEntry, withBytes } from '../src/run/journal-replay.ts'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

function stateOf(keep: KeepRule, stop: DeskOptions['stop'] = {}): RunState {
  return createRunState(new Desk({ keep, stop }).state.config)
}

const versionOf = (v: number): VersionRef => ({ v, id: hashOf(`version ${v}`) as unknown as VersionRef['id'] })

function checkpoint(state: RunState, ...steps: readonly number[]): void {
  for (const v of steps) {
    const support = { bytes: 1, witnessed: true, agreeing: 2, members: 2 }
    applyEntry(state, { type: 'checkpoint', version: versionOf(v), blob: hashOf(`state ${v}`), ...support }, v)
  }
}

function evaluate(
  state: RunState,
  v: number,
  loss: number,
  { accuracy = 0, confirmed = true, metrics = [] as NamedMetric[] } = {},
): void {
  applyEntry(state, { type: 'evaluated', version: versionOf(v), loss, accuracy, metrics, confirmed }, v)
}

const kept = (state: RunState): number[] => withBytes(state).map(({ version }) => version.v)
const released = (state: RunState): number[] => state.released.map(({ version }) => version.v)

test('the newest three stay where the job says nothing, and `last` of them where it does', () => {
  const [usual, more] = [stateOf({}), stateOf({ last: 5 })]
  for (const state of [usual, more]) checkpoint(state, 1, 2, 3, 4, 5, 6, 7, 8)
  assert.deepEqual(
    [kept(usual), kept(more)],
    [
      [6, 7, 8],
      [4, 5, 6, 7, 8],
    ],
  )
})

test('the best confirmed validations keep their checkpoints, by the metric of the job', () => {
  const [byLoss, byAccuracy] = [stateOf({ best: 2, last: 2 }), stateOf({ best: 2, last: 2 }, { metric: 'accuracy' })]
  for (const state of [byLoss, byAccuracy])
    for (const [v, loss, accuracy] of [
      [1, 0.5, 0.1],
      [2, 0.2, 0.2],
      [3, 0.4, 0.9],
      [4, 0.3, 0.3],
      [5, 0.9, 0.4],
      [6, 0.9, 0.1],
      [7, 0.9, 0.1],
    ] as const) {
      checkpoint(state, v)
      evaluate(state, v, loss, { accuracy })
    }
  assert.deepEqual(
    [kept(byLoss), kept(byAccuracy)],
    [
      [2, 4, 6, 7],
      [3, 5, 6, 7],
    ],
  )
  assert.deepEqual(released(byLoss), [1, 3], 'what was among the best for a while')
})

test('what is kept goes by a metric that falls or rises as the job says', () => {
  const [byError, byFit] = [
    stateOf({ best: 1, last: 2 }, { metric: 'MAE' }),
    stateOf({ best: 1, last: 2 }, { metric: 'R2' }),
  ]
  for (const state of [byError, byFit])
    for (const [v, error, fit] of [
      [1, 0.5, 0.1],
      [2, 0.2, -2],
      [3, 0.4, 0.9],
      [4, 0.6, 0.2],
      [5, 0.6, 0.2],
    ] as const) {
      checkpoint(state, v)
      evaluate(state, v, 1, {
        metrics: [
          { name: 'MAE', value: error },
          { name: 'R²', value: fit },
        ],
      })
    }
  assert.deepEqual(
    [kept(byError), kept(byFit)],
    [
      [2, 4, 5],
      [3, 4, 5],
    ],
  )
})

test('an unconfirmed validation keeps nothing, whatever it claims', () => {
  const state = stateOf({ best: 1, last: 2 })
  checkpoint(state, 1)
  evaluate(state, 1, 0, { accuracy: 1, confirmed: false })
  checkpoint(state, 2)
  evaluate(state, 2, 0.7)
  checkpoint(state, 3, 4, 5)
  assert.deepEqual(kept(state), [2, 4, 5])
})

test('a best validation stays known however many follow it', () => {
  const state = stateOf({ best: 2, last: 2 })
  for (let v = 1; v <= 200; v++) {
    checkpoint(state, v)
    evaluate(state, v, v === 3 || v === 5 ? 0.1 : 0.5)
  }
  assert.deepEqual(kept(state), [3, 5, 199, 200])
})

test('the evaluation may be known before its checkpoint', () => {
  const state = stateOf({ best: 1, last: 2 })
  evaluate(state, 1, 0.1)
  checkpoint(state, 1, 2, 3, 4)
  assert.deepEqual(kept(state), [1, 3, 4])
})

test('of every so many steps the first checkpoint stays, and the newest of these', () => {
  const state = stateOf({ every: 10, last: 2 })
  checkpoint(state, 4, 9, 12, 13, 18, 19, 25, 31, 39, 40, 41, 42)
  assert.deepEqual(kept(state), [12, 25, 31, 40, 41, 42])
  for (let v = 50; v < 10_000; v += 10) checkpoint(state, v)
  assert.ok(kept(state).length <= MOST_KEPT, 'a disk is finite')
  assert.deepEqual(kept(state).slice(-2), [9980, 9990])
  assert.deepEqual(
    released(state).slice(-1),
    [kept(state)[0] ?? 0].map((v) => v - 10),
  )
})

test('what is damaged is kept no more', () => {
  const state = stateOf({ best: 1, every: 2, last: 2 })
  for (let v = 1; v <= 6; v++) checkpoint(state, v)
  evaluate(state, 3, 0.5)
  evaluate(state, 4, 0.1)
  assert.deepEqual(kept(state), [2, 4, 5, 6])
  applyEntry(state, { type: 'checkpoint-damaged', version: versionOf(2) }, 9)
  assert.deepEqual(kept(state), [4, 5, 6])
  checkpoint(state, 7)
  assert.deepEqual(kept(state), [4, 6, 7])
})

test('a rewind lets go of what comes after it', () => {
  const desk = new Desk({ blocks: 60, batchBlocks: 1, minVolunteers: 2, keep: { best: 2, last: 2 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (let v = 1; v <= 7; v++) {
    desk.step(v)
    desk.checkpoint()
    const version = desk.state.chain.head
    const measured = { type: 'evaluated', version, loss: 1, accuracy: 0, confirmed: true } as const
    if (v === 1 || v === 6) applyEntry(desk.state, measured, desk.now)
  }
  assert.deepEqual(kept(desk.state), [1, 6, 7])
  const to = desk.state.checkpoints.find(({ version }) => version.v === 4)?.version ?? assert.fail()
  applyEntry(desk.state, { type: 'rewind', to }, desk.now)
  assert.deepEqual([kept(desk.state), released(desk.state)], [[1, 4], [6]])
})

test('a snapshot has what is kept', () => {
  const state = stateOf({ best: 1, every: 5, last: 2 })
  for (let v = 1; v <= 12; v++) {
    checkpoint(state, v)
    evaluate(state, v, Math.abs(v - 3))
  }
  assert.deepEqual(kept(state), [3, 5, 10, 11, 12])
  const again = createRunState(state.config)
  readRun(again as never, writtenRun(state))
  assert.deepEqual([kept(again), released(again)], [kept(state), released(state)])
})

/** Two members that measure this loss of the version which is validated. */
function measure(desk: Desk, lossSum: number): void {
  const orders = desk.sent('validate')
  for (const { to, leases } of orders) for (const lease of leases) say(desk, to, lease, lossSum)
}

function say(desk: Desk, name: string, lease: LeaseToken, lossSum: number): void {
  const version = desk.state.validation.now?.version ?? assert.fail()
  desk.say(name, { type: 'validated', version, lease, samples: 1, targets: 1, correct: 0, lossSum })
}

function validating(keep: KeepRule): Desk {
  const options = { blocks: 12, batchBlocks: 1, validationBlocks: 1, evaluate: { everySteps: 3 }, minVolunteers: 2 }
  const desk = new Desk({ ...options, keep, timing: { checkpointSteps: 1000, checkpointMs: 1e9 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (let v = 1; v <= 3; v++) desk.step(v)
  return desk
}

function save(desk: Desk, version: VersionRef): void {
  const { uploader } = desk.state.checkpointing.asked ?? assert.fail()
  desk.feed({ type: 'uploaded', member: uploader, version, blob: hashOf('state'), bytes: 1 })
  for (const name of ['a', 'b'])
    if (memberId(name) !== uploader) desk.say(name, { type: 'version-digest', version, digest: hashOf('state') })
}

test('a ring rests at its best version until the checkpoint is durable, and not at a worse one', () => {
  const desk = validating({ best: 1 })
  measure(desk, 0.5)
  assert.equal(desk.state.evaluations.at(-1)?.confirmed, true)
  assert.deepEqual(desk.planned(4), [])
  assert.match(desk.state.phaseReason, /writing version 3, which is kept as one of the best/)
  save(desk, desk.state.chain.head)
  assert.equal(desk.planned(4).length, 1)
  for (let v = 4; v <= 6; v++) desk.step(v)
  measure(desk, 0.9)
  assert.equal(desk.planned(7).length, 1, 'it goes on at once')
  assert.deepEqual(kept(desk.state), [3])
})

test('without `best` no ring waits for a checkpoint of what it validated', () => {
  const desk = validating({})
  measure(desk, 0.5)
  assert.equal(desk.planned(4).length, 1)
})

test('a ring rests at each multiple of `every` until the checkpoint is durable', () => {
  const options = { blocks: 60, batchBlocks: 1, minVolunteers: 2, timing: { checkpointSteps: 1000, checkpointMs: 1e9 } }
  const desk = new Desk({ ...options, keep: { every: 5 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  assert.deepEqual([desk.planned(5).length, desk.planned(6).length], [1, 0])
  for (let v = 1; v <= 5; v++) desk.step(v)
  assert.match(desk.state.phaseReason, /writing version 5, which is kept as one of every 5 steps/)
  save(desk, desk.state.chain.head)
  assert.deepEqual([desk.planned(6).length, desk.planned(10).length, desk.planned(11).length], [1, 1, 0])
  assert.deepEqual(kept(desk.state), [5])
})

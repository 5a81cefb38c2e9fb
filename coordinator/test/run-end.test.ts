// When a run ends and why: the decision by a table, and runs at a desk that end by each criterion.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type LeaseToken,
  memberId,
  type Metric,
  METRICS,
  type StopRule,
  type VersionRef,
  versionId,
} from '@starling-grid/protocol'
import { bestOf, endOf, type Evaluation, type Progress, withEvaluation } from '../src/run/history/ending.ts'
import { trainedMs } from '../src/run/history/training-time.ts'
import { asyncDesk, push } from './async-desk.ts'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

const versionAt = (v: number): VersionRef => ({ v, id: versionId(v.toString(16).padStart(64, '0')) })

/** Losses of one validation after the other; unconfirmed ones in brackets. */
function evaluated(metric: Metric, values: readonly (number | readonly [number])[]): Evaluation[] {
  let known: Evaluation[] = []
  for (const [i, value] of values.entries()) {
    const [measured, confirmed] = typeof value === 'number' ? [value, true] : [value[0], false]
    const { name } = METRICS[metric]
    const ofTargets = name === 'loss' ? {} : { metrics: [{ name, value: measured }] }
    const newest = { version: versionAt(i + 1), loss: 9, accuracy: 0, confirmed, ...ofTargets, [metric]: measured }
    known = withEvaluation(known, newest, metric)
  }
  return known
}

const HALF_WAY: Progress = { steps: 40, epochs: 3.2, endedWith: undefined, trainedMs: 60_000, evaluations: [] }
const loss = (...values: (number | readonly [number])[]) => ({ evaluations: evaluated('loss', values) })
const accuracy = (...values: (number | readonly [number])[]) => ({ evaluations: evaluated('accuracy', values) })

const by = (metric: Metric, ...values: (number | readonly [number])[]) => ({ evaluations: evaluated(metric, values) })

const ENDS: readonly (readonly [rule: StopRule, progress: Partial<Progress>, end: string | undefined])[] = [
  [{ steps: 41 }, {}, undefined],
  [{ steps: 40 }, {}, 'ended after 3.2 epochs: 40 steps are trained'],
  [{ steps: 1 }, { steps: 1, epochs: 0.004_16 }, 'ended after 0.004 epochs: 1 step is trained'],
  [{ epochs: 4 }, { endedWith: 4, epochs: 4 }, 'ended after 4 epochs: all 4 epochs are trained'],
  [{ minutes: 1 }, { trainedMs: 59_999 }, undefined],
  [{ minutes: 1 }, {}, 'ended after 3.2 epochs: 1 minute of training is over'],
  [{ epochs: 9, metric: 'accuracy', target: 0.97 }, accuracy(0.5, 0.9699), undefined],
  [
    { epochs: 9, metric: 'accuracy', target: 0.97 },
    accuracy(0.5, 0.971),
    'ended after 3.2 epochs: accuracy 0.971 reached the target 0.97',
  ],
  [
    { epochs: 9, metric: 'accuracy', target: 0.97 },
    accuracy(0.97),
    'ended after 3.2 epochs: accuracy 0.97 reached the target 0.97',
  ],
  [{ epochs: 9, metric: 'accuracy', target: 0.97 }, accuracy(0.5, [0.999]), undefined],
  [{ epochs: 9, metric: 'loss', target: 0.1 }, loss(0.5, 0.11), undefined],
  [
    { epochs: 9, metric: 'loss', target: 0.1 },
    loss(0.5, 0.0999),
    'ended after 3.2 epochs: loss 0.0999 reached the target 0.1',
  ],
  [{ epochs: 9, metric: 'loss', target: 0.1 }, loss(0.5, [0]), undefined],
  [{ epochs: 9, metric: 'loss', target: 0.1 }, loss(Number.NaN), undefined],
  [{ epochs: 9, patience: 2 }, loss(0.3, 0.4), undefined],
  [
    { epochs: 9, patience: 2 },
    loss(0.3, 0.4, 0.5),
    'ended after 3.2 epochs: no better loss than 0.3 of version 1 in 2 validations',
  ],
  [
    { epochs: 9, patience: 2 },
    loss(0.3, 0.3, 0.3),
    'ended after 3.2 epochs: no better loss than 0.3 of version 1 in 2 validations',
  ],
  [{ epochs: 9, patience: 2 }, loss(0.3, 0.4, 0.2, 0.4), undefined],
  [{ epochs: 9, patience: 2 }, loss(0.3, [0.4], [0.5], [0.6]), undefined],
  [
    { epochs: 9, patience: 2 },
    loss(0.3, 0.4, [0.1], 0.5),
    'ended after 3.2 epochs: no better loss than 0.3 of version 1 in 2 validations',
  ],
  [{ epochs: 9, metric: 'accuracy', patience: 1 }, accuracy(0.3, 0.4), undefined],
  [
    { epochs: 9, metric: 'accuracy', patience: 1 },
    accuracy(0.4, 0.3),
    'ended after 3.2 epochs: no better accuracy than 0.4 of version 1 in 1 validation',
  ],
  [{ epochs: 9, metric: 'perplexity', target: 20 }, by('perplexity', 90, 20.1), undefined],
  [
    { epochs: 9, metric: 'perplexity', target: 20 },
    by('perplexity', 90, 19.5),
    'ended after 3.2 epochs: perplexity 19.5 reached the target 20',
  ],
  [{ epochs: 9, metric: 'MAE', target: 0.5 }, by('MAE', 0.4), 'ended after 3.2 epochs: MAE 0.4 reached the target 0.5'],
  [{ epochs: 9, metric: 'R2', target: 0.9 }, by('R2', -3, 0.8), undefined],
  [{ epochs: 9, metric: 'R2', target: 0.9 }, by('R2', 0.95), 'ended after 3.2 epochs: R² 0.95 reached the target 0.9'],
  [{ epochs: 9, metric: 'F1', target: 0.9 }, by('F1', 0.95), 'ended after 3.2 epochs: F1 0.95 reached the target 0.9'],
  [{ epochs: 9, metric: 'top-5', target: 0.99 }, by('F1', 1), undefined], // measured something else
  [
    { epochs: 9, metric: 'MAE', patience: 1 },
    by('MAE', 0.4, 0.5),
    'ended after 3.2 epochs: no better MAE than 0.4 of version 1 in 1 validation',
  ],
  [{ epochs: 9, metric: 'R2', patience: 1 }, by('R2', 0.4, 0.5), undefined],
  [
    { steps: 40, metric: 'accuracy', target: 0.9 },
    accuracy(0.95),
    'ended after 3.2 epochs: accuracy 0.95 reached the target 0.9',
  ],
]

test('a run ends with the first bound, target or patience that is reached, and its end says which', () => {
  for (const [rule, progress, end] of ENDS)
    assert.equal(endOf(rule, { ...HALF_WAY, ...progress }), end, JSON.stringify([rule, progress]))
})

test('the best validation is remembered however many come after it, and patience counts all of them', () => {
  const many = Array.from({ length: 500 }, () => 0.7)
  const known = evaluated('loss', [0.5, 0.2, ...many])
  assert.ok(known.length <= 65, `${known.length} are kept`)
  assert.equal(bestOf(known, 'loss')?.version.v, 2)
  const rule = { epochs: 9, patience: 500 }
  assert.match(endOf(rule, { ...HALF_WAY, evaluations: known }) ?? '', /in 500 validations$/)
  assert.equal(endOf({ ...rule, patience: 501 }, { ...HALF_WAY, evaluations: known }), undefined)
})

/** One step is an epoch, and each is validated by one block. */
const EPOCHS: DeskOptions = { blocks: 3, batchBlocks: 3, validationBlocks: 1, epochs: 50 }

function ringOf(names: readonly string[], options: DeskOptions, earlier?: Desk): Desk {
  const desk = new Desk({ ...EPOCHS, minVolunteers: names.length, timing: { stallMs: 1e9 }, ...options }, earlier)
  desk.join(...names)
  desk.run(...names)
  return desk
}

/** All that were asked measure this; a member in `lies` something else. */
function validate(desk: Desk, lossSum: number, lies: Readonly<Record<string, number>> = {}): void {
  const measured = { samples: 10, targets: 10, correct: Math.round(10 - lossSum) }
  const { head } = desk.state.chain
  const orders = desk.sent('validate')
  assert.ok(orders.length > 0, `version ${head.v} is validated`)
  for (let order = orders.shift(); order !== undefined; order = orders.shift()) {
    const { to, leases } = order
    for (const lease of leases as LeaseToken[])
      desk.say(to, { type: 'validated', version: head, lease, ...measured, lossSum: lies[to] ?? lossSum })
    orders.push(...desk.sent('validate'))
  }
}

/** The state of the head is uploaded, and the others hold the same. */
function upload(desk: Desk): void {
  const { head } = desk.state.chain
  const [first = memberId('a'), ...others] = desk.members
  desk.feed({ type: 'uploaded', member: first, version: head, blob: hashOf('state'), bytes: 1 })
  for (const other of others) desk.say(other, { type: 'version-digest', version: head, digest: hashOf('state') })
  desk.feed({ type: 'tick' })
}

test('a run ends by its target when two members measured it, and its checkpoint is of that version', () => {
  const desk = ringOf(['a', 'b'], { stop: { metric: 'loss', target: 0.3 } })
  for (const [i, sum] of [9, 6, 2.9].entries()) {
    desk.step(i + 1)
    assert.equal(desk.state.finished, undefined)
    validate(desk, sum)
    if (i === 2) assert.deepEqual(desk.planned(4), [], 'no step follows')
    upload(desk)
  }
  assert.equal(desk.state.finished, 'ended after 3 epochs: loss 0.29 reached the target 0.3')
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, 3)
})

test('what one member alone measured ends no run', () => {
  const alone = ringOf(['a'], { stop: { metric: 'loss', target: 0.3, patience: 1 } })
  for (const v of [1, 2, 3]) {
    alone.step(v)
    validate(alone, 0)
  }
  assert.equal(alone.planned(4).length, 3, 'training goes on')
  const lied = ringOf(['liar', 'b'], { stop: { metric: 'loss', target: 0.3 } })
  lied.step(1)
  validate(lied, 9, { liar: 0 })
  assert.equal(lied.planned(2).length, 3)
  assert.equal(lied.state.evaluations.at(-1)?.confirmed, false)
})

test('a run ends when validations get no better, also where it was begun by a coordinator before', () => {
  const stop: StopRule = { patience: 2 }
  const before = ringOf(['a', 'b'], { stop })
  for (const [i, sum] of [5, 3, 4].entries()) {
    before.step(i + 1)
    validate(before, sum)
  }
  upload(before)
  const desk = ringOf(['a', 'b'], { stop }, before)
  assert.deepEqual(desk.state.evaluations, before.state.evaluations)
  desk.step(4)
  validate(desk, 3)
  upload(desk)
  assert.equal(desk.state.finished, 'ended after 4 epochs: no better loss than 0.3 of version 2 in 2 validations')
})

test('validations of versions that a rewind cuts off end no run', () => {
  const desk = ringOf(['a', 'b'], { stop: { metric: 'loss', target: 0.3 } })
  desk.step(1)
  validate(desk, 9)
  desk.checkpoint()
  desk.step(2)
  validate(desk, 1)
  assert.deepEqual(
    desk.state.evaluations.map(({ version }) => version.v),
    [1, 2],
  )
  const [a, b] = [...desk.members]
  for (const id of [a, b])
    desk.feed({ type: 'member-lost', member: id ?? memberId('a'), reason: 'gone', expected: false })
  for (let i = 0; i < 400 && desk.state.chain.head.v > 1; i++) desk.wait(1000)
  assert.equal(desk.state.chain.head.v, 1)
  assert.deepEqual(
    desk.state.evaluations.map(({ version }) => version.v),
    [1],
  )
  desk.join('c', 'd')
  desk.run('c', 'd')
  assert.equal(desk.planned(2).length, 3, 'the step is trained again')
})

test('a run ends after its minutes of training; a pause and a wait for volunteers are none', () => {
  const desk = ringOf(['a'], { stop: { minutes: 1 }, validationBlocks: 0 })
  const train = (seconds: number): void => {
    for (let s = 0; s < seconds; s++) desk.wait(1000)
  }
  train(20)
  assert.ok(Math.abs(trained(desk) - 20_000) <= 1000, `${trained(desk)} ms`)
  desk.feed({ type: 'pause' })
  desk.step(1)
  train(600)
  desk.feed({ type: 'resume' })
  desk.lose('a')
  train(600)
  const soFar = trained(desk)
  assert.ok(soFar < 30_000, `${soFar} ms`)
  desk.join('b')
  desk.run('b')
  if (desk.phase !== 'ring') desk.admit()
  assert.equal(desk.state.finished, undefined)
  for (let s = 0; s < 120 && desk.state.trainedMs < 60_000; s++) desk.wait(1000)
  assert.equal(desk.state.trainedMs >= 60_000, true)
  for (let v = desk.state.chain.head.v + 1; desk.planned(v).length > 0; v++) desk.step(v)
  upload(desk)
  assert.match(desk.state.finished ?? '', /1 minute of training is over$/)
  assert.equal(new Desk({ ...EPOCHS, stop: { minutes: 1 } }, desk).state.trainedMs, desk.state.trainedMs)
})

function trained(desk: Desk): number {
  return trainedMs(desk.state)
}

test('time that a process slept is no time of training', () => {
  const desk = ringOf(['a'], { stop: { minutes: 10 } })
  desk.wait(1000)
  desk.wait(3_600_000)
  assert.ok(trained(desk) < 10_000, `${trained(desk)} ms`)
})

test('a run in async mode ends by its target', () => {
  const { desk, grants } = asyncDesk(['a', 'b'], {
    ...EPOCHS,
    minVolunteers: 2,
    batchBlocks: 2,
    stop: { metric: 'loss', target: 0.3 },
  })
  const [first, second] = grants
  assert.ok(first && second)
  push(desk, 'a', first)
  push(desk, 'b', second)
  validate(desk, 1)
  desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.deepEqual(desk.sent('grant'), [], 'no work follows')
  const { head } = desk.state.chain
  desk.feed({ type: 'server-checkpoint', version: head, blob: hashOf('state'), bytes: 1 })
  assert.equal(desk.state.finished, 'ended after 1 epoch: loss 0.1 reached the target 0.3')
})

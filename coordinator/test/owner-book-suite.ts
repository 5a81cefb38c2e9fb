// What every OwnerBook does, wherever it is kept.
import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { after, test } from 'node:test'
import { jobId } from '@starling-grid/protocol'
import { coordinatorId, type OwnerBook } from '../src/journal/owner-book.ts'
import type { StateStore } from '../src/journal/state-store.ts'

export interface SharedState {
  readonly store: StateStore
  readonly close: () => Promise<void>
}

const [NORTH, SOUTH] = [coordinatorId('north'), coordinatorId('south')]
const [JOB, OTHER] = [jobId('digits-1'), jobId('texts-2')]

/** `open`: the same store each time, as two coordinators open it. */
export function ownerBookSuite(where: string, open: () => Promise<() => Promise<SharedState>>): void {
  const two: Two = async () => {
    const again = await open()
    const opened = [await again(), await again()]
    for (const { close } of opened) after(close)
    const [first, second] = opened
    if (first?.store.owners === undefined || second?.store.owners === undefined) assert.fail('they share the store')
    return [first.store, first.store.owners, second.store, second.store.owners]
  }

  test(`${where}: each beat tells of all coordinators, how long they were silent, and of all jobs`, async () => {
    const [store, north, , south] = await two()
    await store.createJob({ id: JOB, description: '{}' }, NORTH)
    await store.createJob({ id: OTHER, description: '{}' })
    await north.beat(NORTH, 'first')
    await north.beat(NORTH, 'second')
    await new Promise((resolve) => setTimeout(resolve, 30))
    const { coordinators, owners } = await south.beat(SOUTH, 'new')
    assert.deepEqual(
      coordinators.map(({ id, card }) => [id, card]),
      [
        [NORTH, 'second'],
        [SOUTH, 'new'],
      ],
    )
    assert.ok((coordinators[0]?.silentMs ?? 0) >= 25, `silent for ${coordinators[0]?.silentMs} ms`)
    assert.ok((coordinators[1]?.silentMs ?? 99) < (coordinators[0]?.silentMs ?? 0), 'the newest beat is the last')
    assert.deepEqual(
      [...owners],
      [
        [JOB, NORTH],
        [OTHER, undefined],
      ],
    )
  })

  test(`${where}: of two coordinators that take a job at once, one has it`, async () => {
    const [store, north, , south] = await two()
    await store.createJob({ id: JOB, description: '{}' })
    const taken = await Promise.all([north.pass(JOB, undefined, NORTH), south.pass(JOB, undefined, SOUTH)])
    assert.equal(taken.filter(Boolean).length, 1)
    const { owners } = await north.beat(NORTH, '')
    assert.equal(owners.get(JOB), taken[0] ? NORTH : SOUTH)
  })

  test(`${where}: a job passes on from the one that has it, and from no other`, async () => {
    const [store, north, , south] = await two()
    await store.createJob({ id: JOB, description: '{}' }, NORTH)
    assert.equal(await south.pass(JOB, undefined, SOUTH), false)
    assert.equal(await north.pass(JOB, NORTH, SOUTH), true)
    assert.equal(await north.pass(JOB, NORTH, SOUTH), false)
    assert.equal((await south.beat(SOUTH, '')).owners.get(JOB), SOUTH)
    assert.equal(await south.pass(jobId('nowhere'), undefined, SOUTH), false)
  })

  leavingSuite(where, two)
}

type Two = () => Promise<readonly [StateStore, OwnerBook, StateStore, OwnerBook]>

function leavingSuite(where: string, two: Two): void {
  test(`${where}: one that leaves is not listed any more, and what it has can be taken`, async () => {
    const [store, north, , south] = await two()
    await store.createJob({ id: JOB, description: '{}' }, NORTH)
    await north.beat(NORTH, '')
    await north.leave(NORTH)
    const { coordinators, owners } = await south.beat(SOUTH, '')
    assert.deepEqual([coordinators.map(({ id }) => id), owners.get(JOB)], [[SOUTH], NORTH])
    assert.equal(await south.pass(JOB, NORTH, SOUTH), true)
  })

  test(`${where}: a deleted job has no owner`, async () => {
    const [store, north] = await two()
    await store.createJob({ id: JOB, description: '{}' }, NORTH)
    await store.beginDelete(JOB)
    assert.deepEqual([...(await north.beat(NORTH, '')).owners], [])
  })

  test(`${where}: of all coordinators one at a time changes shared blobs`, async () => {
    const [, north, , south] = await two()
    const began = new EventEmitter()
    const beginning = once(began, 'begin')
    const first = north.alone(async () => {
      const ended = once(began, 'end')
      began.emit('begin')
      await ended
      return 'done'
    })
    await beginning
    await assert.rejects(
      south.alone(async () => 'too early'),
      { code: 'rate-exceeded' },
    )
    began.emit('end')
    assert.equal(await first, 'done')
    assert.equal(await south.alone(async () => 'now'), 'now')
    await assert.rejects(
      north.alone(() => Promise.reject(new Error('of its own'))),
      /of its own/,
    )
    assert.equal(await south.alone(async () => 'again'), 'again')
  })
}

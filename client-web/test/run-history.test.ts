import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { WatchMessage } from '@starling-grid/protocol'
import { applyWatch, EMPTY_HISTORY, type PageHistory } from '../src/live/run-history.ts'
import { snapshotAt, updateTo } from './fixture-run.ts'

const fold = (...messages: readonly WatchMessage[]): PageHistory => messages.reduce(applyWatch, EMPTY_HISTORY)

test('a snapshot and its updates are the same as a later snapshot', () => {
  const live = fold(snapshotAt(100), updateTo(100, 101), updateTo(101, 130))
  const reloaded = fold(snapshotAt(130))
  assert.deepEqual(live.steps, reloaded.steps)
  assert.deepEqual(live.validations, reloaded.validations)
  assert.deepEqual(live.run, reloaded.run)
})

test('a rewind drops the points above it, and the same steps may come again', () => {
  const rewound = fold(snapshotAt(100), { ...updateTo(80, 82), rewoundTo: 80 })
  assert.deepEqual(
    rewound.steps.map((point) => point.v),
    Array.from({ length: 82 }, (_, i) => i + 1),
  )
  assert.ok(rewound.validations.every((point) => point.v <= 82))
})

test('a rewind shows at once, before another step is committed', () => {
  const known = fold(snapshotAt(100))
  const rewound = fold(snapshotAt(100), { ...updateTo(20, 20), rewoundTo: 20 })
  assert.deepEqual(
    rewound.steps,
    known.steps.filter(({ v }) => v <= 20),
  )
  assert.ok(known.validations.some(({ v }) => v > 20))
  assert.ok(rewound.validations.every(({ v }) => v <= 20))
})

test('points that are known already are replaced, never doubled', () => {
  const history = fold(snapshotAt(100), updateTo(95, 103))
  assert.equal(history.steps.length, 103)
})

test('of the events the newest five hundred are kept, however long the page stays open', () => {
  const updates = Array.from({ length: 60 }, (_, i): WatchMessage => {
    const update = updateTo(100 + i, 101 + i)
    return {
      ...update,
      events: Array.from({ length: 10 }, (_unused, k) => ({
        at: 10 * i + k,
        kind: 'run',
        text: `event ${10 * i + k}`,
      })),
    }
  })
  const { events } = fold({ ...snapshotAt(100), events: [] }, ...updates)
  assert.equal(events.length, 500)
  assert.deepEqual([events[0]?.text, events.at(-1)?.text], ['event 100', 'event 599'])
})

test('a kind of event that comes all the time takes no place of the others', () => {
  const flood = Array.from({ length: 700 }, (_, i) => ({ at: i, kind: 'member', text: `visitor ${i}` }) as const)
  const rewind = { at: 0, kind: 'rewind', text: 'back to version 3' } as const
  const { events } = fold(
    { ...snapshotAt(100), events: [rewind, ...flood.slice(0, 300)] },
    { ...updateTo(100, 101), events: flood.slice(300) },
  )
  assert.equal(events.length, 500)
  assert.deepEqual([events[0], events[1], events.at(-1)], [rewind, flood[201], flood[699]])
})

test('when the job is gone nothing of it stays', () => {
  assert.deepEqual(fold(snapshotAt(100), { type: 'none', reason: 'stopped by its owner' }), {
    ...EMPTY_HISTORY,
    noRun: 'stopped by its owner',
  })
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { systemClock } from '@starling-grid/protocol'
import { memoryState } from '../src/journal/memory.ts'
import { coordinatorId, type OwnerBook } from '../src/journal/owner-book.ts'
import { Owners } from '../src/owners/owners.ts'

const [SELF, OTHER] = [coordinatorId('self'), coordinatorId('other')]
/** turns of the event loop: a store in memory answers in less than one */
const TURNS = 20

function ownersOf(book: OwnerBook): Owners {
  const nothing = async (): Promise<void> => undefined
  return new Owners({
    clock: systemClock,
    book,
    self: SELF,
    card: () => ({
      url: 'http://127.0.0.1:1',
      machine: 'this one',
      startedAt: 0,
      takesJobs: true,
      jobs: [],
      publicJobs: [],
      seats: [],
    }),
    jobs: { has: () => false, list: () => [], open: nothing, drop: nothing, close: nothing, isIdle: () => true },
    onTrouble: (text) => assert.fail(text),
    onPassed: () => undefined,
    onOthers: () => undefined,
    onCutOff: () => undefined,
  })
}

test('a beat that the store is slow to write does not bring a coordinator back that has left', async () => {
  const { owners: book } = memoryState({ sharedBy: systemClock })
  assert.ok(book)
  let write: (() => void) | undefined
  let isSlow = false
  const owners = ownersOf({
    ...book,
    beat: async (id, card) => {
      if (isSlow && write === undefined)
        await new Promise<void>((resolve) => {
          write = resolve
        })
      return book.beat(id, card)
    },
  })
  await owners.start(async () => undefined)
  isSlow = true
  const refreshed = owners.refresh()
  const left = owners.leave()
  for (let i = 0; i < TURNS; i++) await turn()
  write?.()
  await Promise.all([refreshed, left])
  await owners.refresh()
  const { coordinators } = await book.beat(OTHER, '')
  assert.deepEqual(
    coordinators.map(({ id }) => id),
    [OTHER],
  )
})

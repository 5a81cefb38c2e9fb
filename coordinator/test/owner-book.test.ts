import { systemClock } from '@starling-grid/protocol'
import { memoryState } from '../src/journal/memory.ts'
import { ownerBookSuite } from './owner-book-suite.ts'

ownerBookSuite('in memory', async () => {
  const store = memoryState({ sharedBy: systemClock })
  return async () => ({ store, close: async () => undefined })
})

// The journal for tests and for runs that need not survive.
import { type Clock, GridError, type JobId, type StepRecord } from '@starling-grid/protocol'
import { superseded } from '../run/queue/superseded.ts'
import { fenceAfter, ownerRow, requireFence, requireListed } from './fence.ts'
import { type CoordinatorId, type OwnerBook, requireTurn } from './owner-book.ts'
import type { PortableState } from './portable.ts'
import { recordChanges, snapshotPlace } from './record-rows.ts'
import { inOrder, type JournalRow, type StoredJob } from './state-store.ts'

interface Journal {
  readonly job: StoredJob
  readonly rows: JournalRow[]
  /** records[v − 1] made version v */
  readonly records: StepRecord[]
  fence: number
  owner?: CoordinatorId | undefined
  isDeleted?: boolean
}

export interface MemoryStateOptions {
  /** of beats, where several coordinators share this store; absent: one alone uses it */
  readonly sharedBy?: Pick<Clock, 'now'>
}

// oxlint-disable-next-line max-lines-per-function -- the operations of one store, over the maps that they share
export function memoryState({ sharedBy }: MemoryStateOptions = {}): PortableState {
  const journals = new Map<JobId, Journal>()
  const values = new Map<string, string>()

  function journalOf(job: JobId): Journal {
    const journal = journals.get(job)
    if (journal === undefined) throw new Error(`internal: job ${job} was never created`)
    return journal
  }

  const listed = (isDeleted: boolean): StoredJob[] =>
    [...journals.values()].filter((journal) => (journal.isDeleted ?? false) === isDeleted).map(({ job }) => job)

  function create(journal: Journal): void {
    const { id } = journal.job
    if (journals.has(id))
      throw new GridError('duplicate', `expected a new job id, got ${id}, which exists; choose another`)
    journals.set(id, journal)
  }

  return {
    ...(sharedBy === undefined ? {} : { owners: memoryOwners(journals, sharedBy) }),
    createJob: async (job, owner) => create({ job, rows: [], records: [], fence: 0, owner }),
    jobs: async () => listed(false),
    async beginDelete(job, fence) {
      const journal = journalOf(job)
      if (fence !== undefined) requireFence(job, journal.fence, fence)
      journal.isDeleted = true
    },
    deleted: async () => listed(true),
    async endDelete(job) {
      if (journals.get(job)?.isDeleted === true) journals.delete(job)
    },
    async takeOver(job, at, read) {
      const journal = journalOf(job)
      const row = ownerRow(journal.fence, at)
      const result = read(structuredClone([...journal.rows, row]))
      journal.fence = row.entry.fence
      journal.rows.push(row)
      for (const place of superseded(journal.rows.map(({ entry }) => entry))) journal.rows.splice(place, 1)
      return result
    },
    async append(job, own, rows) {
      const journal = journalOf(job)
      requireFence(job, journal.fence, own)
      requireListed(job, journal.isDeleted ?? false)
      journal.rows.push(...structuredClone(rows))
      journal.fence = fenceAfter(journal.fence, rows)
      for (const change of recordChanges(rows.map(({ entry }) => entry))) {
        if ('above' in change) journal.records.length = Math.min(journal.records.length, change.above)
        else journal.records[change.record.v - 1] = structuredClone(change.record)
      }
      journal.rows.splice(0, snapshotPlace(journal.rows.map(({ entry }) => entry)))
    },
    load: async (job) => structuredClone(journalOf(job).rows),
    records: async (job, from, limit) =>
      structuredClone(journalOf(job).records.slice(Math.max(0, from - 1), Math.max(0, from - 1) + limit)),
    copyOf: async ({ id }) => structuredClone(journalOf(id)),
    async adopt(copy) {
      const { job, fence, rows, records } = structuredClone(copy)
      create({ job, fence, rows: [...rows], records: [...records] })
    },
    async put(key, value) {
      values.set(key, value)
    },
    get: async (key) => values.get(key),
    values: async (prefix) =>
      inOrder(
        [...values].map(([key, value]) => ({ key, value })),
        prefix,
      ),
    async remove(key) {
      values.delete(key)
    },
    close: async () => undefined,
  }
}

function memoryOwners(journals: ReadonlyMap<JobId, Journal>, clock: Pick<Clock, 'now'>): OwnerBook {
  const beats = new Map<CoordinatorId, { readonly card: string; readonly at: number }>()
  let isBusy = false
  return {
    async beat(id, card) {
      beats.set(id, { card, at: clock.now() })
      const listed = [...journals].filter(([, { isDeleted }]) => isDeleted !== true)
      return {
        coordinators: [...beats].map(([one, beat]) => ({ id: one, card: beat.card, silentMs: clock.now() - beat.at })),
        owners: new Map(listed.map(([job, { owner }]) => [job, owner])),
      }
    },
    async pass(job, from, to) {
      const journal = journals.get(job)
      if (journal === undefined || journal.owner !== from) return false
      journal.owner = to
      return true
    },
    async leave(id) {
      beats.delete(id)
    },
    async alone(work) {
      requireTurn(!isBusy)
      isBusy = true
      try {
        return await work()
      } finally {
        isBusy = false
      }
    },
  }
}

// What every StateStore does, wherever it keeps its rows.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { jobId, type StepRecord, trainingBlock, versionId } from '@starling-grid/protocol'
import { memoryState } from '../src/journal/memory.ts'
import type { PortableState } from '../src/journal/portable.ts'
import type { JournalRow, StateStore } from '../src/journal/state-store.ts'
import type { JournalEntry, WrittenRun } from '../src/run/index.ts'
import { recordsAfter } from './run-desk.ts'

export interface OpenedState {
  readonly store: PortableState
  readonly close: () => Promise<void>
}

const JOB = jobId('digits-1')
const fence = (fence: number): JournalRow => ({ at: TAKEN_AT, entry: { type: 'fence', fence: fence } })
const TAKEN_AT = 1000.5
const takeOver = (store: StateStore, job = JOB): Promise<readonly JournalRow[]> =>
  store.takeOver(job, TAKEN_AT, (rows) => rows)
const row = (entry: JournalEntry): JournalRow => ({ at: 3000.5, entry })
const recordOf = (v: number): StepRecord =>
  recordsAfter({ v: v - 1, id: versionId('0') }, 1, 1, [trainingBlock(0, v)])[0] ?? assert.fail()
/** What a store makes of a snapshot does not depend on what is in it. */
const SNAPSHOT = row({ type: 'snapshot', run: { form: 1 } as WrittenRun, shown: {} })
const ballot = (generation: number): JournalRow => ({ at: 2000.5 + generation, entry: { type: 'ballot', generation } })

export function stateStoreSuite(where: string, open: () => Promise<OpenedState>): void {
  const opened = async (): Promise<PortableState> => {
    const { store, close } = await open()
    after(close)
    await store.createJob({ id: JOB, description: '{"name":"digits"}' })
    return store
  }

  test(`${where}: jobs are listed in the order of their creation, and an id is taken once`, async () => {
    const store = await opened()
    await store.createJob({ id: jobId('another'), description: '{}' })
    await assert.rejects(store.createJob({ id: JOB, description: '{}' }), { code: 'duplicate' })
    assert.deepEqual(await store.jobs(), [
      { id: JOB, description: '{"name":"digits"}' },
      { id: 'another', description: '{}' },
    ])
  })

  test(`${where}: appended rows come back whole and in order, each job its own`, async () => {
    const store = await opened()
    await store.createJob({ id: jobId('another'), description: '{}' })
    await takeOver(store)
    await store.append(JOB, 1, [ballot(1)])
    await takeOver(store, jobId('another'))
    await store.append(JOB, 1, [])
    await store.append(JOB, 1, [ballot(2)])
    assert.deepEqual(await store.load(JOB), [fence(1), ballot(1), ballot(2)])
    assert.deepEqual(await store.load(jobId('another')), [fence(1)])
  })

  test(`${where}: nothing is appended to a job that was not taken over`, async () => {
    const store = await opened()
    await assert.rejects(store.append(JOB, 1, [ballot(1)]), { code: 'lease-stale' })
    assert.deepEqual(await store.load(JOB), [])
  })

  test(`${where}: once a newer coordinator owns the job, an append of the older one fails whole`, async () => {
    const store = await opened()
    await takeOver(store)
    await takeOver(store)
    await assert.rejects(store.append(JOB, 1, [ballot(1), ballot(2)]), { code: 'lease-stale' })
    await store.append(JOB, 2, [ballot(3)])
    assert.deepEqual(await store.load(JOB), [fence(1), fence(2), ballot(3)])
  })

  test(`${where}: a deleted job is marked first, takes no rows, and is gone at the end with all its rows`, async () => {
    const store = await opened()
    const another = { id: jobId('another'), description: '{"name":"another"}' }
    await store.createJob(another)
    await takeOver(store, another.id)
    await takeOver(store)
    await store.append(JOB, 1, [row({ type: 'commit', records: [recordOf(1)] } as unknown as JournalEntry)])
    await store.beginDelete(JOB, 1)
    await store.beginDelete(JOB, 1)
    assert.deepEqual([await store.jobs(), (await store.deleted()).map(({ id }) => id)], [[another], [JOB]])
    await assert.rejects(store.append(JOB, 1, [ballot(1)]), { code: 'lease-stale' })
    assert.equal((await store.load(JOB)).length, 2, 'what it has is still to be read')
    await store.endDelete(another.id) // not marked
    await store.endDelete(JOB)
    await store.endDelete(JOB)
    assert.deepEqual([await store.jobs(), await store.deleted()], [[another], []])
    assert.deepEqual(await store.load(another.id), [fence(1)])
    await store.createJob({ id: JOB, description: '{}' }) // the id is free again
    assert.deepEqual([await store.load(JOB), await store.records(JOB, 1, 10)], [[], []])
  })

  test(`${where}: a coordinator that was deposed deletes no job`, async () => {
    const store = await opened()
    await takeOver(store)
    await takeOver(store)
    await assert.rejects(store.beginDelete(JOB, 1), { code: 'lease-stale' })
    assert.deepEqual(await store.deleted(), [])
  })

  test(`${where}: a take-over reads every row that was committed before its own`, async () => {
    const store = await opened()
    await takeOver(store)
    await store.load(JOB)
    await store.append(JOB, 1, [ballot(1)])
    assert.deepEqual(await takeOver(store), [fence(1), ballot(1), fence(2)])
  })

  test(`${where}: coordinators that take over at once get different numbers; the last owns the job`, async () => {
    const store = await opened()
    const seen = await Promise.all([takeOver(store), takeOver(store), takeOver(store)])
    // Which of them comes first is not promised.
    assert.deepEqual(new Set(seen.map((rows) => rows.at(-1))), new Set([fence(1), fence(2), fence(3)]))
    await assert.rejects(store.append(JOB, 2, [ballot(1)]), { code: 'lease-stale' })
    await store.append(JOB, 3, [ballot(1)])
  })

  test(`${where}: a take-over drops superseded rows, so that restarts do not lengthen the journal`, async () => {
    const store = await opened()
    const kept = { at: 1, entry: { type: 'quarantine', block: trainingBlock(0, 1) } } as const
    for (let fence = 1; fence <= 50; fence++) {
      await takeOver(store)
      await store.append(JOB, fence, [ballot(2 * fence), ballot(2 * fence + 1)])
      if (fence === 1) await store.append(JOB, fence, [kept])
    }
    assert.deepEqual((await takeOver(store)).length, 7)
    assert.deepEqual(await store.load(JOB), [fence(1), kept, ballot(101), fence(51)])
  })

  test(`${where}: an owner that raises its number continues with it, and its older one is void (I7)`, async () => {
    const store = await opened()
    await takeOver(store)
    await store.append(JOB, 1, [{ at: 1, entry: { type: 'fence', fence: 900 } }, ballot(7)])
    await assert.rejects(store.append(JOB, 1, [ballot(8)]), { code: 'lease-stale' })
    await store.append(JOB, 900, [ballot(8)])
    assert.deepEqual((await takeOver(store)).at(-1), fence(901))
  })

  test(`${where}: a coordinator's number is the second of its start, so that none is given twice (I7)`, async () => {
    const store = await opened()
    const rows = await store.takeOver(JOB, 1_800_000_000_500, (all) => all)
    assert.deepEqual(rows.at(-1)?.entry, { type: 'fence', fence: 1_800_000_000 })
    assert.deepEqual((await takeOver(store)).at(-1), fence(1_800_000_001), 'also when a clock goes back')
  })

  test(`${where}: a take-over whose reader fails writes nothing, and the owner before goes on`, async () => {
    const store = await opened()
    await takeOver(store)
    await assert.rejects(
      store.takeOver(JOB, 1, () => {
        throw new Error('record 44 cannot follow version 44')
      }),
      /^Error: record 44/,
    )
    await store.append(JOB, 1, [ballot(1)])
    assert.deepEqual(await store.load(JOB), [fence(1), ballot(1)])
  })

  test(`${where}: rows that the caller changes afterwards do not change the journal`, async () => {
    const store = await opened()
    const members: string[] = ['a']
    const row = { at: 1, entry: { type: 'start', generation: 1, members, records: [] } } as unknown as JournalRow
    await takeOver(store)
    await store.append(JOB, 1, [row])
    members.push('b')
    assert.equal(
      JSON.stringify((await store.load(JOB))[1]?.entry),
      '{"type":"start","generation":1,"members":["a"],"records":[]}',
    )
  })

  test(`${where}: a snapshot drops the rows before it, and their chain can still be read page by page`, async () => {
    const store = await opened()
    await store.createJob({ id: jobId('another'), description: '{}' })
    await takeOver(store, jobId('another'))
    await takeOver(store)
    const [first, second, third, other] = [recordOf(1), recordOf(2), recordOf(3), { ...recordOf(2), generation: 9 }]
    await store.append(JOB, 1, [ballot(1), row({ type: 'start', generation: 1, members: [], records: [first] })])
    await store.append(JOB, 1, [row({ type: 'commit', records: [second, third] })])
    await store.append(JOB, 1, [row({ type: 'rewind', to: { v: 1, id: versionId('1') } })])
    await store.append(JOB, 1, [row({ type: 'commit', records: [other] }), SNAPSHOT, ballot(2)])
    assert.deepEqual(await store.load(JOB), [SNAPSHOT, ballot(2)])
    await store.append(JOB, 1, [row({ type: 'commit', records: [third] })])
    assert.deepEqual(await store.records(JOB, 1, 10), [first, other, third])
    assert.deepEqual(await store.records(JOB, 1, 2), [first, other])
    assert.deepEqual(await store.records(JOB, 3, 2), [third])
    assert.deepEqual([await store.records(JOB, 4, 2), await store.records(jobId('another'), 1, 9)], [[], []])
    assert.deepEqual(await store.load(jobId('another')), [fence(1)])
    assert.deepEqual((await takeOver(store))[0], SNAPSHOT)
  })

  test(`${where}: a snapshot of a coordinator that was replaced drops nothing`, async () => {
    const store = await opened()
    await takeOver(store)
    await store.append(JOB, 1, [ballot(1), row({ type: 'commit', records: [recordOf(1)] })])
    await takeOver(store)
    const before = await store.load(JOB)
    await assert.rejects(store.append(JOB, 1, [SNAPSHOT, ballot(2)]), { code: 'lease-stale' })
    assert.deepEqual(await store.load(JOB), before)
  })

  test(`${where}: a job goes to another store and back whole, and its next owner has a higher number`, async () => {
    const [store, other] = [await opened(), memoryState()]
    await takeOver(store)
    await store.append(JOB, 1, [ballot(1), row({ type: 'commit', records: [recordOf(1), recordOf(2)] }), SNAPSHOT])
    await store.append(JOB, 1, [ballot(2), row({ type: 'commit', records: [recordOf(3)] })])
    const job = { id: JOB, description: '{"name":"digits"}' }
    const copy = await store.copyOf(job)
    assert.deepEqual([copy.job, copy.fence, copy.rows.length, copy.records.length], [job, 1, 3, 3])
    await other.adopt(copy)
    await takeOver(other)
    const moved = { ...(await other.copyOf(job)), job: { ...job, id: jobId('moved') } }
    await store.adopt(moved)
    assert.deepEqual(await store.copyOf(moved.job), moved)
    assert.deepEqual((await takeOver(store, moved.job.id)).at(-1), fence(3))
    await store.append(moved.job.id, 3, [row({ type: 'commit', records: [recordOf(4)] })])
    assert.deepEqual(await store.records(moved.job.id, 3, 9), [recordOf(3), recordOf(4)])
    await assert.rejects(store.adopt(copy), { code: 'duplicate' })
    assert.deepEqual(await store.copyOf(job), copy)
  })

  test(`${where}: a small value is replaced by a newer one`, async () => {
    const store = await opened()
    assert.equal(await store.get('token'), undefined)
    await store.put('token', 'first')
    await store.put('token', 'second')
    assert.equal(await store.get('token'), 'second')
    await store.put('invite/b', '2')
    await store.put('invite/a', '1')
    await store.put('invite%', 'no pattern')
    assert.deepEqual(await store.values('invite/'), [
      { key: 'invite/a', value: '1' },
      { key: 'invite/b', value: '2' },
    ])
    await store.remove('invite/a')
    await store.remove('invite/a')
    assert.deepEqual(await store.values('invite/'), [{ key: 'invite/b', value: '2' }])
    assert.equal((await store.values('')).length, 3)
  })
}

// What a long run costs, counted: 100,000 steps and 1,000 reconnects through the production shell and a real SQLite
// file.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { type MemberId, memberId, type StepRecord } from '@starling-grid/protocol'
import Database from 'libsql'
import { openFolderBlobs } from '../src/blobs/folder.ts'
import type { RunHost } from '../src/host/run-host.ts'
import { openSqliteState } from '../src/journal/sqlite.ts'
import { SNAPSHOT_ROWS } from '../src/run/history/snapshot-due.ts'
import { smallJob, startCoordinator, temporaryFolder } from './fixture.ts'
import { hashOf } from './run-desk.ts'

const STEPS = 100_000
const RECONNECTS = 1000
/** STEPS, and one block each */
const EPOCHS = 100
/** steps in a turn of the event loop: they share a transaction */
const TURN = 32
/** rows of the decisions under way: those of a few turns of the event loop */
const LEEWAY = 8 * TURN

const adapter = { name: 'none', vendor: 'test', software: true, executor: 'reference' } as const
const idOf = (text: string): MemberId => memberId(hashOf(text).slice(0, 32))
const WORKER = idOf('worker')

/** A ring of one that holds every step at once, and newcomers that come and go beside it. */
class Work {
  readonly #host: RunHost
  readonly #rows: () => number
  /** what was kept at most, by name */
  #most: Record<string, number> = {}

  constructor(host: RunHost, rows: () => number) {
    this.#host = host
    this.#rows = rows
  }

  join(member: MemberId): void {
    this.#host.feed({
      type: 'member-joined',
      member: { id: member, name: 'member', client: 'node', adapter },
      samplesPerSecond: 100,
    })
  }

  lose(member: MemberId): void {
    this.#host.feed({ type: 'member-lost', member, reason: 'the socket broke', expected: false })
  }

  /** Answers a ballot until the ring runs. */
  async begin(): Promise<void> {
    this.join(WORKER)
    const { state } = this.#host
    for (let held: StepRecord[] | undefined; state.phase.type !== 'ring';) {
      held = state.chain.head.v === 0 ? undefined : []
      const ballot = { fence: state.fence, generation: state.generation }
      const claim = held === undefined ? null : { base: state.chain.head, records: held }
      if (state.phase.type === 'freeze')
        this.#host.feed({ type: 'message', member: WORKER, message: { type: 'state', ...ballot, claim } })
      if (state.phase.type === 'form') {
        const message = { type: 'confirm', ...ballot, version: state.phase.target, digest: hashOf('state') } as const
        this.#host.feed({ type: 'message', member: WORKER, message })
      }
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
  }

  /** Until this version is committed; `reconnects` newcomers come and go meanwhile. Returns what was kept at most. */
  async until(version: number, reconnects: number): Promise<Readonly<Record<string, number>>> {
    this.#most = {}
    const { state } = this.#host
    const from = state.chain.head.v
    for (let count = 0; state.chain.head.v < version;) {
      for (let i = 0; i < TURN && state.chain.head.v < version; i++) this.#step()
      const due = Math.floor((reconnects * (state.chain.head.v - from)) / (version - from))
      for (; count < due; count++) this.#reconnect(count)
      await new Promise((resolve) => setImmediate(resolve))
      this.#count()
    }
    return this.#most
  }

  #step(): void {
    const { state } = this.#host
    if (state.phase.type !== 'ring') assert.fail(`the ring ended: ${state.phaseReason}`)
    const v = state.chain.head.v + 1
    const blocks = state.phase.planned.get(v) ?? assert.fail(`step ${v} is not planned`)
    const { generation, modeEpoch, fence } = state
    const counts = { samples: 1, targets: 1, lossSum: 1, correct: 0, gradDigest: hashOf(`${v % 100}`) }
    const record: StepRecord = { v, generation, modeEpoch, kind: 'ring', blocks, ...counts }
    this.#host.feed({ type: 'message', member: WORKER, message: { type: 'held', fence, generation, record } })
    if (state.checkpointing.asked?.v === v)
      this.#host.feed({ type: 'uploaded', member: WORKER, version: state.chain.head, blob: hashOf(`${v}`), bytes: 1 })
  }

  /** Every second one has a new id. */
  #reconnect(count: number): void {
    const member = idOf(count % 2 === 0 ? `newcomer of step ${this.#host.state.chain.head.v}` : 'often')
    this.join(member)
    this.lose(member)
  }

  #count(): void {
    for (const [what, count] of Object.entries(this.#kept())) this.#most[what] = Math.max(this.#most[what] ?? 0, count)
  }

  /** Entries in everything that lives as long as the run. */
  #kept(): Record<string, number> {
    const { state, history } = this.#host
    const { records, versions, openEpochs } = state.chain.counts
    const durable = history.state.chain.counts
    const maps = {
      rings: state.rings,
      validated: state.validated,
      failures: state.aside.failures,
      digests: state.digests,
    }
    const more = {
      copies: state.copying.copies,
      members: state.members,
      leases: state.leases,
      damaged: state.aside.damaged,
    }
    const lists = { checkpoints: state.checkpoints, abandoned: state.abandoned, jumps: state.promises.jumps }
    const health = { linkMs: state.health.linkMs, exchangeTimes: state.health.exchangeTimes, workers: state.workers }
    const shown = { departed: history.departed, rewinds: history.rewinds, events: history.events }
    return {
      ...{ records, versions, openEpochs, durableRecords: durable.records, durableEpochs: durable.openEpochs },
      ...Object.fromEntries(Object.entries({ ...maps, ...more, ...health }).map(([name, { size }]) => [name, size])),
      ...Object.fromEntries(Object.entries({ ...lists, ...shown }).map(([name, { length }]) => [name, length])),
      steps: history.steps.length,
      validations: history.validations.length,
      listeners: process.listenerCount('warning') + process.listenerCount('exit'),
      journalRows: this.#rows(),
    }
  }
}

test(
  '100,000 steps and 1,000 reconnects keep no more than 50,000 and 500 do, and a restart replays a thousand rows',
  { timeout: 300_000 },
  async (context) => {
    const dataDir = await temporaryFolder()
    const file = join(dataDir, 'state.db')
    const coordinator = await startCoordinator({ dataDir, timing: {} })
    const host = await coordinator.runs.submit(
      smallJob({
        blockSamples: 1,
        batchBlocks: 1,
        stop: { epochs: EPOCHS },
        evaluate: { everyEpochs: EPOCHS },
        volunteers: { min: 1 },
      }),
    )
    const database = new Database(file)
    const counting = database.prepare('SELECT COUNT(*) AS count FROM journal')
    const work = new Work(host, () => (counting.get() as { count: number }).count)
    await work.begin()
    const first = await work.until(STEPS / 2, RECONNECTS / 2)
    const second = await work.until(STEPS, RECONNECTS / 2)
    context.diagnostic(JSON.stringify(second))
    for (const [what, count] of Object.entries(second))
      assert.ok(count <= Math.max(1.1 * (first[what] ?? 0), LEEWAY), `${what}: ${first[what]}, then ${count}`)
    assert.ok((second['journalRows'] ?? 0) <= 1 + SNAPSHOT_ROWS + LEEWAY, `${second['journalRows']} rows`)
    assert.ok((second['members'] ?? 0) <= 2)

    const { head } = host.state.chain
    await coordinator.stop()
    database.close()
    assert.deepEqual([host.history.version, host.history.samplesCommitted], [head, STEPS])
    assert.equal(host.history.steps.at(-1)?.v, STEPS)

    let replayed = 0
    const store = openSqliteState(file)
    const counted: typeof store.takeOver = (job, at, read) =>
      store.takeOver(job, at, (rows) => {
        replayed += rows.length
        return read(rows)
      })
    const blobs = await openFolderBlobs(join(dataDir, 'blobs'))
    const again = await startCoordinator({ dataDir, storage: { store: { ...store, takeOver: counted }, blobs } })
    const reopened = again.runs.find(host.job.id) ?? assert.fail('the job is there')
    assert.ok(replayed <= 2 + SNAPSHOT_ROWS + LEEWAY, `${replayed} rows were replayed`)
    assert.deepEqual(reopened.state.chain.written(), host.history.state.chain.written())
    assert.deepEqual(reopened.history.steps, host.history.steps)
    assert.equal(reopened.history.samplesCommitted, STEPS)
    const [tail, beyond] = [await reopened.records(STEPS - 1, 500), await reopened.records(STEPS + 1, 500)]
    assert.deepEqual([tail.map(({ v }) => v), beyond], [[STEPS - 1, STEPS], []])
    assert.equal((await reopened.records(1, 500)).length, 500)
  },
)

// Snapshots of the journal: whatever happened before, a snapshot and the rows behind it make the state of all rows.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import {
  extend,
  type BlockId,
  jobId,
  memberId,
  type MemberId,
  type StepRecord,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { RunHistory } from '../src/host/run-history.ts'
import { RunJournal } from '../src/host/run-journal.ts'
import { memoryState } from '../src/journal/memory.ts'
import type { JournalRow } from '../src/journal/state-store.ts'
import { SNAPSHOT_LEAST_ROWS, SNAPSHOT_MS, SNAPSHOT_ROWS, snapshotDue } from '../src/run/history/snapshot-due.ts'
import { type JournalEntry, replay, type RunState, writtenRun } from '../src/run/index.ts'
import { Desk, hashOf, recordsAfter } from './run-desk.ts'

const BLOCKS = 6
const EPOCHS = 400
const { config } = new Desk({ blocks: BLOCKS, epochs: EPOCHS, validationBlocks: 2, keep: { best: 2, every: 7 } }).state
const SEEDS = 12
const LENGTH = 400

/** mulberry32 */
function random(seed: number): (below: number) => number {
  let a = seed
  return (below) => {
    a = (a + 0x6d2b79f5) | 0
    let t = Math.imul(a ^ (a >>> 15), 1 | a)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % below
  }
}

/** A journal as a coordinator could have written it: every kind of entry, in an order that dice chose. */
class Journal {
  readonly rows: JournalRow[] = []
  readonly #below: (below: number) => number
  #generation = 0
  #versions: VersionRef[] = [config.genesis]
  #checkpoints: VersionRef[] = [config.genesis]
  #reserved = 0

  constructor(seed: number, length: number) {
    this.#below = random(seed)
    this.#add({ type: 'fence', fence: 1 })
    while (this.rows.length < length) this.#next()
  }

  get #head(): VersionRef {
    return this.#versions.at(-1) ?? config.genesis
  }

  #add(entry: JournalEntry): void {
    this.rows.push({ at: 1000 + this.rows.length, entry })
  }

  #records(count: number): StepRecord[] {
    const blocks: BlockId[] = []
    for (let v = this.#head.v; blocks.length < count; v++)
      blocks.push(trainingBlock(Math.floor(v / BLOCKS), v % BLOCKS))
    const records = recordsAfter(this.#head, this.#generation, count, blocks)
    for (const record of records) this.#versions.push(extend(this.#head, record))
    return records
  }

  #members(): MemberId[] {
    return Array.from({ length: 1 + this.#below(4) }, () => memberId(`m${this.#below(9)}`))
  }

  #next(): void {
    const block = trainingBlock(this.#below(3), this.#below(BLOCKS))
    const dice = this.#below(100)
    if (dice < 55) return this.#add({ type: 'commit', records: this.#records(1 + this.#below(3)) })
    if (dice < 62) return this.#ballot()
    if (dice < 70)
      return this.#add({
        type: 'start',
        generation: ++this.#generation,
        members: this.#members(),
        records: this.#records(this.#below(2)),
      })
    if (dice < 77) return this.#checkpoint()
    if (dice < 81) return this.#rewind()
    if (dice < 84) return this.#add({ type: 'mode', mode: 'async', modeEpoch: this.rows.length, reason: `${dice}` })
    if (dice < 87) {
      this.#reserved += 1000
      return this.#add({ type: 'lease', reserved: this.#reserved })
    }
    if (dice < 90) return this.#add({ type: 'quarantine', block })
    if (dice < 92) return this.#add({ type: 'restored', blocks: [block] })
    if (dice < 93) return this.#damaged()
    if (dice < 94) return this.#add({ type: 'epochs', epochs: EPOCHS - this.#below(3) })
    if (dice < 95) return this.#evaluated()
    if (dice < 96) return this.#add({ type: 'trained', ms: 1000 * this.rows.length })
    if (dice < 97) return this.#add({ type: 'finished', reason: `${dice} of ${this.rows.length}` })
    return this.#validated(dice < 99)
  }

  /** Of a version, or of one block of it. */
  #validated(isWhole: boolean): void {
    const tally = { of: 'classes', top: this.#below(5) } as const
    const counts = { samples: 4, targets: 4, correct: 1 + this.#below(3), lossSum: 1.5, ...(isWhole ? { tally } : {}) }
    const blocks = (isWhole ? ['v:0', 'v:1'] : ['v:1']) as BlockId[]
    for (const validated of blocks) this.#add({ type: 'validated', version: this.#head, block: validated, ...counts })
  }

  #evaluated(): void {
    const [loss, accuracy] = [this.#below(9), this.#below(2)]
    const metrics = this.#below(2) > 0 ? { metrics: [{ name: 'F1', value: loss / 2 } as const] } : {}
    this.#add({ type: 'evaluated', version: this.#head, loss, accuracy, ...metrics, confirmed: this.#below(3) > 0 })
  }

  #ballot(): void {
    const after = this.#generation
    const skipped = this.#below(3)
    this.#generation += 1 + skipped
    this.#add({ type: 'ballot', generation: this.#generation, ...(skipped > 0 ? { after } : {}) })
  }

  #checkpoint(): void {
    if (this.#checkpoints.some(({ id }) => id === this.#head.id)) return
    const blob = hashOf(`${this.#head.id}`)
    const support = { bytes: 9, witnessed: this.#below(2) > 0, agreeing: 2, members: 3 }
    const memory = this.#below(2) > 0 ? { remembered: hashOf('memory') } : {}
    // version 0, and as many as are remembered
    this.#checkpoints = [config.genesis, ...[...this.#checkpoints.slice(1), this.#head].slice(-6)]
    this.#add({ type: 'checkpoint', version: this.#head, blob, ...support, ...memory })
  }

  #rewind(): void {
    const to = this.#checkpoints.at(-1 - this.#below(this.#below(20) === 0 ? 7 : 2)) ?? config.genesis
    this.#versions = this.#versions.slice(0, to.v + 1)
    this.#checkpoints = this.#checkpoints.filter(({ v }) => v <= to.v)
    this.#add({ type: 'rewind', to, ...(this.#below(3) === 0 ? { final: true, generation: this.#generation } : {}) })
  }

  #damaged(): void {
    const version = this.#checkpoints.at(-1)
    if (version === undefined || version.v === 0) return
    this.#checkpoints = this.#checkpoints.filter(({ id }) => id !== version.id)
    this.#add({ type: 'checkpoint-damaged', version })
  }
}

/** All that applyEntry writes, in no form of the snapshot's. */
function durable(state: RunState) {
  const { fence, generation, checkpoints, mode, modeEpoch, modeReason, leasesReserved, quarantined, restorations } =
    state
  const { validated, finished, abandoned, rings, chain, lostGenerations, forgottenGeneration } = state
  return {
    numbers: {
      fence,
      generation,
      mode,
      modeEpoch,
      modeReason,
      leasesReserved,
      restorations,
      finished,
      trainedMs: state.trainedMs,
    },
    evaluations: state.evaluations,
    kept: state.kept,
    released: state.released,
    epochs: state.config.epochs,
    head: chain.head,
    base: chain.base,
    records: chain.records,
    done: Array.from({ length: EPOCHS }, (_, epoch) =>
      Array.from({ length: BLOCKS }, (__, index) => chain.isDone(trainingBlock(epoch, index))),
    ),
    checkpoints,
    quarantined,
    validated,
    abandoned,
    rings,
    lostGenerations,
    forgottenGeneration,
  }
}

function historyOf(rows: readonly JournalRow[]): RunHistory {
  const history = new RunHistory(config)
  for (const row of rows) history.observe(row)
  return history
}

function shown(history: RunHistory) {
  const { steps, validations, samplesCommitted, startedAt, finishedAt, rewindCount, version } = history
  return { steps, validations, samplesCommitted, startedAt, finishedAt, rewindCount, version }
}

/** The rows that a restart finds when a snapshot was written after the first `place`. */
function snapshotted(rows: readonly JournalRow[], place: number): JournalRow[] {
  const entry = historyOf(rows.slice(0, place)).snapshot()
  return [JSON.parse(JSON.stringify({ at: 1, entry })) as JournalRow, ...rows.slice(place)]
}

test(`in ${SEEDS} random histories a snapshot and the rows after it restore what all rows restore`, () => {
  let metrics = 0
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { rows } = new Journal(seed, LENGTH)
    const [state, history] = [durable(replay(config, rows)), shown(historyOf(rows))]
    metrics += history.validations.filter((point) => point.metrics !== undefined).length
    const cutOff = rows.findLastIndex(({ entry }) => entry.type === 'rewind') + 1 // what it left may come back
    for (const place of [1, cutOff, 50 + seed, 200 + seed, LENGTH - seed, LENGTH]) {
      const found = snapshotted(rows, place)
      const then = durable(replay(config, rows.slice(0, place)))
      assert.deepEqual(durable(replay(config, found.slice(0, 1))), then, `seed ${seed}, a snapshot of ${place} rows`)
      assert.deepEqual(durable(replay(config, found)), state, `seed ${seed}, snapshot after ${place} rows`)
      assert.deepEqual(shown(historyOf(found)), history, `seed ${seed}, curves after ${place} rows`)
      const twice = snapshotted(found, Math.ceil(found.length / 2))
      assert.deepEqual(durable(replay(config, twice)), state, `seed ${seed}, a second snapshot`)
    }
  }
  assert.ok(metrics > 0, 'curves of metrics were among them')
})

test('a field that a snapshot lacks is missed: none of them is there for nothing', () => {
  const states = Array.from({ length: SEEDS }, (_, i) => replay(config, new Journal(i + 1, LENGTH).rows))
  for (const field of Object.keys(writtenRun(states[0] ?? assert.fail()))) {
    const missed = states.some((state) => {
      const written: Record<string, unknown> = { ...writtenRun(state) }
      delete written[field]
      const entry = { type: 'snapshot', run: written, shown: {} } as unknown as JournalEntry
      try {
        const read = replay(config, [{ entry, at: 1 }])
        return !isDeepStrictEqual(durable(read), durable(state)) // older snapshots lack it
      } catch (error) {
        return (error as { code?: string }).code === 'journal-damaged'
      }
    })
    assert.ok(missed, `a snapshot without ${field} is taken`)
  }
})

test('a damaged snapshot is refused with what is wrong, and the state of another program version by its name', () => {
  const { rows } = new Journal(5, LENGTH)
  const run = writtenRun(replay(config, rows))
  const refused = (changed: unknown, text: RegExp): void =>
    assert.throws(
      () => replay(config, [{ at: 1, entry: { type: 'snapshot', run: changed, shown: {} } as JournalEntry }]),
      { code: 'journal-damaged', message: text },
    )
  refused({ ...run, form: 2 }, /expected a snapshot of form 1, got form 2; start the version/)
  refused({ ...run, generation: -1 }, /generation must be >= 0, got -1/)
  refused(undefined, /a snapshot in the journal/)
  refused({ ...run, chain: { ...run.chain, records: run.chain.records.slice(1) } }, /cannot follow version/)
  refused({ ...run, chain: { ...run.chain, head: { v: run.chain.head.v, id: config.genesis.id } } }, /lead to version/)
  refused({ ...run, chain: { ...run.chain, done: [{ epoch: 1, bits: 'AAAAAAAA' }] } }, /expected 6 bits of epoch 1/)
})

test('a snapshot is due after many rows, after a long time, and at the end; the reason says which', () => {
  const tail = { rows: 0, since: 0, ended: false }
  const due = (change: Partial<typeof tail>, now = 0): string | undefined => {
    const decision = snapshotDue({ ...tail, ...change }, now)
    return decision.due ? decision.reason : undefined
  }
  assert.equal(due({ rows: SNAPSHOT_ROWS - 1 }), undefined)
  assert.equal(due({ rows: SNAPSHOT_ROWS }), '1000 rows are behind the last snapshot')
  assert.equal(due({ rows: SNAPSHOT_LEAST_ROWS - 1 }, SNAPSHOT_MS), undefined)
  assert.equal(due({ rows: SNAPSHOT_LEAST_ROWS }, SNAPSHOT_MS - 1), undefined)
  assert.equal(due({ rows: SNAPSHOT_LEAST_ROWS }, SNAPSHOT_MS), 'the last snapshot is 600 s old')
  assert.deepEqual([due({ ended: true }), due({ ended: true, rows: 1 })], [undefined, 'the run is over'])
})

const JOB = jobId('j')

async function journalOf(store = memoryState()) {
  const history = new RunHistory(config)
  const troubles: string[] = []
  const journal = new RunJournal({
    job: JOB,
    store,
    history,
    now: () => 0,
    onTrouble: (text) => troubles.push(text),
  })
  await store.createJob({ id: JOB, description: '{}' })
  await store.takeOver(JOB, 0, (rows) => journal.replay(rows))
  return { store, history, journal, troubles }
}

test('the journal holds a snapshot and at most a thousand rows and a batch, in a run of any length', async () => {
  const { store, journal, history } = await journalOf()
  const { rows } = new Journal(3, 3500)
  const lengths: number[] = []
  for (let place = 1; place < rows.length; place += 10) {
    const batch = rows.slice(place, place + 10)
    await journal.append(batch)
    journal.durable(batch)
    lengths.push((await store.load(JOB)).length)
  }
  const most = 1 + SNAPSHOT_ROWS + 10
  assert.ok(Math.max(...lengths) <= most, `${Math.max(...lengths)} rows`)
  assert.deepEqual(durable(replay(config, await store.load(JOB))), durable(replay(config, rows)))
  await journal.append([], true)
  const [snapshot, ...rest] = await store.load(JOB)
  assert.deepEqual([snapshot?.entry.type, rest.length, journal.rows], ['snapshot', 0, 0])
  assert.deepEqual(durable(replay(config, await store.load(JOB))), durable(history.state))
})

test('an append that fails leaves the older snapshot and its rows, and the next repeats the snapshot', async () => {
  const store = memoryState()
  const append = store.append.bind(store)
  let fails = false
  store.append = async (...args) => {
    if (fails) throw new Error('disk')
    return append(...args)
  }
  const { journal } = await journalOf(store)
  const { rows } = new Journal(4, 2000)
  const first = rows.slice(1, 1 + SNAPSHOT_ROWS)
  await journal.append(first)
  journal.durable(first)
  const [before, next] = [await store.load(JOB), rows.slice(1 + SNAPSHOT_ROWS, 1500)]
  fails = true
  await assert.rejects(journal.append(next))
  assert.deepEqual(await store.load(JOB), before)
  fails = false
  await journal.append(next)
  assert.deepEqual((await store.load(JOB)).length, 1 + next.length)
})

test('a journal that contradicts itself keeps all its rows: no snapshot is made of what is not known', async () => {
  const { store, journal } = await journalOf()
  const { rows } = new Journal(6, 3000)
  const commits = rows.filter(({ entry }) => entry.type === 'commit')
  const wrong = [commits[1], commits[1]].flatMap((row) => row ?? [])
  await journal.append(wrong)
  assert.throws(() => journal.durable(wrong), /cannot follow/)
  await journal.append(rows.slice(1, 1200))
  await journal.append(rows.slice(1200, 1300))
  assert.equal((await store.load(JOB)).length, 1 + 2 + 1299)
})

// Durable events of the journal: rows that wait together share one commit (R1), beside a commit for each.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStorage } from '@starling-grid/coordinator'
import type { JournalRow, StateStore } from '@starling-grid/coordinator/shell'
import { type BlockId, jobId, sha256Name, type StepRecord } from '@starling-grid/protocol'
import { type BenchRow, type Contender, race, toAim } from './row.ts'
import type { StoreSuiteOptions } from './suite.ts'

/** rows that arrive while the disk writes those before them */
const GROUP = 64
const GROUPED = 64 * GROUP
/** fewer, since each waits for the disk */
const SINGLE = 256
/** durable events a second */
const AIM = 5000

export async function journalRows({ rounds, postgres }: StoreSuiteOptions): Promise<BenchRow[]> {
  const sqlite = await journalRow(undefined, rounds)
  return postgres === undefined ? [sqlite] : [sqlite, await journalRow(postgres, rounds)]
}

async function journalRow(state: string | undefined, rounds: number): Promise<BenchRow> {
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-journal-'))
  const { store } = await openStorage({ dataDir, ...(state === undefined ? {} : { state }) })
  try {
    const journal = await BenchJournal.open(store)
    const row = await race(
      {
        name: `journal in ${state === undefined ? 'SQLite' : 'PostgreSQL'}, durable events`,
        adapter: 'this disk',
        unit: 'events/s',
        reach: toAim,
      },
      journal.appending(GROUPED, GROUP),
      { aim: async () => AIM, 'a commit each': journal.appending(SINGLE, 1) },
      rounds,
    )
    await journal.forget()
    return row
  } finally {
    await store.close()
    await rm(dataDir, { recursive: true, force: true })
  }
}

class BenchJournal {
  readonly #store: StateStore
  readonly #job = jobId(`bench-${crypto.randomUUID()}`)
  #fence = 0
  #v = 0

  static async open(store: StateStore): Promise<BenchJournal> {
    const journal = new BenchJournal(store)
    await store.createJob({ id: journal.#job, description: '{}' })
    journal.#fence = await store.takeOver(journal.#job, 0, (rows) => rows.length)
    return journal
  }

  private constructor(store: StateStore) {
    this.#store = store
  }

  /** Coordinators of other rows would find it. */
  async forget(): Promise<void> {
    await this.#store.beginDelete(this.#job)
    await this.#store.endDelete(this.#job)
  }

  /** Events a second. */
  appending(events: number, group: number): Contender {
    return async () => {
      const began = performance.now()
      for (let done = 0; done < events; done += group)
        await this.#store.append(
          this.#job,
          this.#fence,
          Array.from({ length: group }, () => this.#commit()),
        )
      return (1000 * events) / (performance.now() - began)
    }
  }

  /** A step of eight blocks, as runs commit it. */
  #commit(): JournalRow {
    const v = ++this.#v
    const record: StepRecord = {
      v,
      generation: 1,
      modeEpoch: 1,
      kind: 'ring',
      blocks: Array.from({ length: 8 }, (_, i) => `0:${8 * v + i}` as BlockId),
      samples: 64,
      targets: 64,
      lossSum: 64 / v,
      correct: 32,
      gradDigest: sha256Name(v.toString(16).padStart(64, '0')),
    }
    return { at: v, entry: { type: 'commit', records: [record] } }
  }
}

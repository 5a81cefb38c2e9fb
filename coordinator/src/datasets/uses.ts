// Which stored jobs need the shards of a dataset or of a model: read from the journal, beside a coordinator that may be
// at work.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { DatasetManifest, JobSpec } from '@starling-grid/protocol'
import { openSqliteState } from '../journal/sqlite.ts'
import type { JournalRow } from '../journal/state-store.ts'

export interface DatasetUse {
  /** names of jobs that need one of the shards and did not end */
  readonly unfinished: readonly string[]
  /** shards that any stored job names */
  readonly shards: ReadonlySet<string>
}

/** What is read of a job's description. */
interface StoredDescription {
  readonly spec: Pick<JobSpec, 'name'>
  readonly manifest: Pick<DatasetManifest, 'train' | 'validation'>
  /** of jobs that tune an imported model */
  readonly base?: {
    readonly manifest: { readonly sha256: string }
    readonly shards: readonly { readonly sha256: string }[]
  }
}

/** @throws GridError 'folder-unwritable', Error when the journal cannot be read */
export async function jobsThatUse(blobs: Iterable<string>, dataDir: string): Promise<DatasetUse> {
  const file = join(dataDir, 'state.db')
  if (!existsSync(file)) return { unfinished: [], shards: new Set() }
  const store = openSqliteState(file)
  try {
    const mine = new Set<string>(blobs)
    const shards = new Set<string>()
    const unfinished: string[] = []
    for (const job of await store.jobs()) {
      const { spec, manifest, base } = JSON.parse(job.description) as StoredDescription
      const rows = await store.load(job.id)
      const appended = rows.flatMap(appendedIn)
      const ofBase = base ? [base.manifest, ...base.shards] : []
      const held = [...manifest.train, ...manifest.validation, ...appended, ...ofBase]
      const names = held.map(({ sha256 }) => sha256)
      for (const name of names) shards.add(name)
      if (names.some((name) => mine.has(name)) && !isFinished(rows)) unfinished.push(`${spec.name} (${job.id})`)
    }
    return { unfinished, shards }
  } finally {
    await store.close()
  }
}

/** Shards that joined the job's dataset. */
function appendedIn({ entry }: JournalRow): readonly { readonly sha256: string }[] {
  if (entry.type === 'appended') return entry.shards
  return entry.type === 'snapshot' ? (entry.run.appended ?? []).flatMap(({ shards }) => shards) : []
}

function isFinished(rows: readonly JournalRow[]): boolean {
  return rows.some(
    ({ entry }) => entry.type === 'finished' || (entry.type === 'snapshot' && entry.run.finished !== null),
  )
}

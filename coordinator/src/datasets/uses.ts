// Which stored jobs need the shards of a dataset or of a model: read from the journal, beside a coordinator that may be
// at work.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { DatasetManifest, JobSpec } from '@starling-grid/protocol'
import { openSqliteState } from '../journal/sqlite.ts'
import type { StateStore, StoredJob } from '../journal/state-store.ts'

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
      const held = [...manifest.train, ...manifest.validation, ...(base ? [base.manifest, ...base.shards] : [])]
      const names = held.map(({ sha256 }) => sha256)
      for (const name of names) shards.add(name)
      if (names.some((name) => mine.has(name)) && !(await isFinished(store, job)))
        unfinished.push(`${spec.name} (${job.id})`)
    }
    return { unfinished, shards }
  } finally {
    await store.close()
  }
}

async function isFinished(store: StateStore, { id }: StoredJob): Promise<boolean> {
  const rows = await store.load(id)
  return rows.some(
    ({ entry }) => entry.type === 'finished' || (entry.type === 'snapshot' && entry.run.finished !== null),
  )
}

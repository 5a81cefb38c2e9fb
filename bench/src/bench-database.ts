// The PostgreSQL database that a caller names for rows of the coordinator: one that nothing else uses.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStorage } from '@starling-grid/coordinator'
import type { StateStore } from '@starling-grid/coordinator/shell'
import { GridError, jobId } from '@starling-grid/protocol'

/** Coordinators are killed on it, and would go on with jobs that are there. @throws GridError 'usage', 'disk-failed' */
export async function requireEmptyDatabase(url: string): Promise<void> {
  const jobs = await inDatabase(url, (store) => store.jobs())
  if (jobs.length > 0)
    throw new GridError(
      'usage',
      `expected an empty database in STARLING_STATE, got one with ${jobs.length} jobs; make another for benchmarks`,
    )
}

/** A job that a row made: coordinators of the next rows would go on with it. */
export async function forgetJob(url: string, job: string): Promise<void> {
  await inDatabase(url, async (store) => {
    await store.beginDelete(jobId(job))
    await store.endDelete(jobId(job))
  })
}

async function inDatabase<T>(state: string, work: (store: StateStore) => Promise<T>): Promise<T> {
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-bench-'))
  const { store } = await openStorage({ dataDir, state })
  try {
    return await work(store)
  } finally {
    await store.close()
    await rm(dataDir, { recursive: true, force: true })
  }
}

// What goes with a deleted job: its blobs, but those that another job or a dataset has, and then its rows. The job is
// marked as deleted before; a start after a crash goes on from the mark, with the same result.
import type { JobId, Sha256 } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { type Catalog, shardsOf } from '../datasets/catalog.ts'
import type { StateStore, StoredJob } from '../journal/state-store.ts'
import { ModelCatalog } from '../models/model-catalog.ts'

export interface DeletionParts {
  readonly store: StateStore
  readonly blobs: BlobStore
  readonly catalog: Catalog
}

/** Keys of descriptions and rows under which names of blobs stand. */
const BLOB_KEYS = new Set(['sha256', 'blob', 'remembered'])
const BLOB_NAME = /^[0-9a-f]{64}$/

/** @param held blobs of all other jobs. @throws GridError 'disk-failed'; the job stays marked then */
export async function finishDeletion(
  job: StoredJob,
  held: ReadonlySet<Sha256>,
  { store, blobs, catalog }: DeletionParts,
): Promise<void> {
  const ofModels = await new ModelCatalog(catalog.dataDir).blobNames()
  const kept = new Set([...held, ...(await ofDatasets(catalog)), ...ofModels])
  for (const blob of await blobsOf(job, store)) if (!kept.has(blob)) await blobs.delete(blob)
  await store.endDelete(job.id)
}

/** All that a stored job names, also one that cannot be opened. */
export async function blobsOf({ id, description }: StoredJob, store: StateStore): Promise<ReadonlySet<Sha256>> {
  const found = new Set<Sha256>()
  collect(parsed(description), found)
  for (const { entry } of await store.load(id)) collect(entry, found)
  return found
}

/** Jobs that a coordinator did not open are read; of the others `open` says what they hold now. */
export async function blobsOfOthers(
  deleted: JobId,
  open: ReadonlyMap<JobId, Iterable<Sha256>>,
  store: StateStore,
): Promise<ReadonlySet<Sha256>> {
  const held = new Set<Sha256>()
  for (const job of await store.jobs()) {
    if (job.id === deleted) continue
    for (const blob of open.get(job.id) ?? (await blobsOf(job, store))) held.add(blob)
  }
  return held
}

/** What every dataset of a name needs, and jobs to come. */
async function ofDatasets(catalog: Catalog): Promise<Sha256[]> {
  const names = await catalog.names()
  return (await Promise.all(names.map((name) => catalog.get(name)))).flatMap(shardsOf)
}

function collect(value: unknown, into: Set<Sha256>): void {
  if (typeof value !== 'object' || value === null) return
  for (const [key, inner] of Object.entries(value)) {
    if (typeof inner !== 'string') collect(inner, into)
    else if (BLOB_KEYS.has(key) && BLOB_NAME.test(inner)) into.add(inner as Sha256)
  }
}

function parsed(description: string): unknown {
  try {
    return JSON.parse(description)
  } catch {
    return undefined // a damaged job: its shards stay
  }
}

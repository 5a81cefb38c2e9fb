// A job as a coordinator would take it, without one: checked whole, its dataset measured, nothing kept. For plans.
import type { JobSpec } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { memoryBlobs } from '../blobs/memory.ts'
import { Catalog } from '../datasets/catalog.ts'
import { DEFAULT_TIMING } from '../run/timing.ts'
import { importJob, type Job, readJob } from './jobs.ts'

export interface DryRunPlaces {
  /** a coordinator's data folder, for datasets that jobs name */
  readonly dataDir: string
  /** folder that the job may read files of */
  readonly dataRoot: string
}

/**
 * Answers with the job, or with the same job after some settings changed; its dataset is read once.
 * @throws GridError 'model-invalid', 'job-invalid', 'unsupported', 'dataset-unreadable'
 */
export async function dryRun(
  spec: JobSpec,
  { dataDir, dataRoot }: DryRunPlaces,
): Promise<(changes?: Partial<JobSpec>) => Job> {
  const catalog = new Catalog(dataDir)
  const blobs = await shardsFor(spec, catalog)
  const { from: _from, ...seeded } = spec // a plan is the same whatever the parameters are
  const parts = { blobs, catalog, dataRoot, versionsOf: () => undefined, submittedAt: 0 }
  const { id, description } = await importJob(seeded, parts)
  const { spec: taken, ...rest } = JSON.parse(description) as { readonly spec: JobSpec }
  return (changes = {}) =>
    readJob({ id, description: JSON.stringify({ ...rest, spec: { ...taken, ...changes } }) }, DEFAULT_TIMING)
}

/** A dataset that was imported stays where it lies; another is measured in memory. */
async function shardsFor({ dataset }: JobSpec, catalog: Catalog): Promise<BlobStore> {
  if (!('name' in dataset)) return memoryBlobs()
  await catalog.get(dataset.name)
  return catalog.blobs()
}

// The dataset that a job names, fitted to the model that the job names, in shards.
import type { ModelSpec } from '@starling-grid/model'
import type { DatasetManifest, JobDataset } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { Catalog } from './catalog.ts'
import { readDigits } from './digits.ts'
import { contextOf, requireAnswers, requireFit } from './fit.ts'
import { readMnistFolder } from './mnist-folder.ts'
import { namedDataset } from './named.ts'
import type { ImportedDataset } from './samples.ts'
import { storeDataset } from './shards.ts'
import { readText, storeText } from './text.ts'

/** Where the shards of a job come from and go to. */
export interface DatasetPlaces {
  readonly blobs: BlobStore
  /** of datasets that were imported under a name */
  readonly catalog: Catalog
}

/** @throws GridError 'dataset-unreadable', 'disk-failed', 'job-invalid' when the model does not fit */
export async function importDataset(
  dataset: JobDataset,
  model: ModelSpec,
  { blobs, catalog }: DatasetPlaces,
): Promise<DatasetManifest> {
  if ('name' in dataset) return namedDataset(dataset, model, { blobs, catalog })
  if (dataset.source === 'text') return importText(dataset, model, blobs)
  const imported = dataset.source === 'digits' ? await digits() : await readMnistFolder(dataset.folder)
  requireFit(model, { ...imported, target: 'classes' })
  return storeDataset(imported, blobs)
}

/** Read once: 8 MB that stay, where each job would hold the event loop for half a second. */
let kept: Promise<ImportedDataset> | undefined

function digits(): Promise<ImportedDataset> {
  kept ??= readDigits().catch((error: unknown) => {
    kept = undefined // the next job tries again
    throw error
  })
  return kept
}

async function importText(
  { path, windowsPerEpoch }: Extract<JobDataset, { readonly source: 'text' }>,
  model: ModelSpec,
  blobs: BlobStore,
): Promise<DatasetManifest> {
  const context = contextOf(model)
  const text = await readText(path)
  requireAnswers(model, context, { text: path, tokens: [...text.vocabulary].length, what: 'characters' })
  return storeText(text, blobs, { context, windowsPerEpoch })
}

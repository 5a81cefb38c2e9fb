import { type ModelSpec, outputShape, tokenVocabulary } from '@starling-grid/model'
// The dataset that a job names, fitted to the model that the job names, in shards.
import { type DatasetManifest, GridError, type JobSpec } from '@starling-grid/protocol'
import { lastSize } from '@starling-grid/shaders'
import type { BlobStore } from '../blobs/blob-store.ts'
import { readDigits } from './digits.ts'
import { readMnistFolder } from './mnist-folder.ts'
import type { ImportedDataset } from './samples.ts'
import { storeDataset } from './shards.ts'
import { readText, storeText } from './text.ts'

/** @throws GridError 'dataset-unreadable', 'disk-failed', 'job-invalid' when the model does not fit */
export async function importDataset(
  dataset: JobSpec['dataset'],
  model: ModelSpec,
  blobs: BlobStore,
): Promise<DatasetManifest> {
  if (dataset.source === 'text') return importText(dataset, model, blobs)
  const imported = dataset.source === 'digits' ? await digits() : await readMnistFolder(dataset.folder)
  requireFit(model, imported)
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
  { path, windowsPerEpoch }: JobSpec['dataset'] & { source: 'text' },
  model: ModelSpec,
  blobs: BlobStore,
): Promise<DatasetManifest> {
  const known = tokenVocabulary(model)
  const [context, ...more] = model.input
  if (known === undefined || context === undefined || more.length > 0)
    throw new GridError(
      'job-invalid',
      'expected a model for text that begins with an `embedding` of tokens, ' +
        `got one of [${model.input.join(', ')}] numbers; choose another model`,
    )
  const text = await readText(path)
  requireAnswers(model, context, { path, characters: [...text.vocabulary].length, known })
  return storeText(text, blobs, { context, windowsPerEpoch })
}

interface Vocabularies {
  readonly path: string
  /** in the text */
  readonly characters: number
  /** tokens that the model's embedding has */
  readonly known: number
}

/** The model knows every character, and says for each place which one comes next. */
function requireAnswers(model: ModelSpec, context: number, { path, characters, known }: Vocabularies): void {
  if (characters > known)
    throw new GridError(
      'job-invalid',
      `expected a model of the ${characters} characters in ${path}, got one of ${known}; change its vocabulary`,
    )
  const output = outputShape(model)
  if (model.loss !== 'cross_entropy' || output.length !== 2 || output[0] !== context || lastSize(output) < characters)
    throw new GridError(
      'job-invalid',
      `expected a model that answers [${context}, ${characters}] with cross_entropy for ${path}, ` +
        `got [${output.join(', ')}] with ${model.loss}`,
    )
}

/** The model takes what the dataset holds and answers as many classes. */
function requireFit(model: ModelSpec, { name, inputShape, classes }: ImportedDataset): void {
  if (tokenVocabulary(model) !== undefined)
    throw new GridError(
      'job-invalid',
      `expected a model for the numbers of dataset ${name}, got one for tokens; choose another model or dataset`,
    )
  if (model.input.join() !== inputShape.join())
    throw new GridError(
      'job-invalid',
      `expected a model for samples of [${inputShape.join(', ')}] of dataset ${name}, ` +
        `got one for [${model.input.join(', ')}]; change its input`,
    )
  const output = outputShape(model)
  if (model.loss === 'cross_entropy' && output.length > 1)
    throw new GridError(
      'job-invalid',
      `expected a model that answers one row of classes for a sample of dataset ${name}, ` +
        `got [${output.join(', ')}]; change its last layer`,
    )
  if (model.loss === 'cross_entropy' && lastSize(output) < classes)
    throw new GridError(
      'job-invalid',
      `expected a model of the ${classes} classes of dataset ${name}, got one of ${lastSize(output)}; ` +
        'change its last layer',
    )
  if (model.loss !== 'cross_entropy' && output.join() !== String(classes))
    throw new GridError(
      'job-invalid',
      `expected one output for each of the ${classes} classes of dataset ${name} with the loss ${model.loss}, ` +
        `got [${output.join(', ')}]; change its last layer`,
    )
}

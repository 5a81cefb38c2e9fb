// A dataset that was imported under a name, as a job trains on it: the job's options and its model make the manifest.
import type { ModelSpec } from '@starling-grid/model'
import {
  type DatasetManifest,
  describeError,
  GridError,
  type JobDataset,
  MAX_CLASS_NAMES,
  MAX_NAME_LENGTH,
  MAX_NORMALIZED,
  type ShardRef,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { type Catalog, type NamedDataset, shardsOf } from './catalog.ts'
import { contextOf, requireAnswers, requireFit } from './fit.ts'

type NamedChoice = Extract<JobDataset, { readonly name: string }>

/** Characters of a manifest's `source`. */
const MAX_SOURCE = 200

/** @throws GridError 'dataset-unreadable' when there is no such dataset, 'job-invalid' when the job does not fit it */
export async function namedDataset(
  wanted: NamedChoice,
  model: ModelSpec,
  { blobs, catalog }: { readonly blobs: BlobStore; readonly catalog: Catalog },
): Promise<DatasetManifest> {
  const dataset = await catalog.get(wanted.name)
  const manifest =
    dataset.targets.kind === 'tokens' ? ofText(dataset, wanted, model) : ofSamples(dataset, wanted, model)
  await takeShards(dataset, await catalog.blobs(), blobs)
  return manifest
}

function ofSamples(dataset: NamedDataset, wanted: NamedChoice, model: ModelSpec): DatasetManifest {
  const { name, inputs, targets } = dataset
  const { kind, size, names } = targets
  if (kind === 'tokens') throw new Error('internal: tokens among samples')
  if (wanted.windowsPerEpoch !== undefined)
    throw refused(`no windowsPerEpoch for the samples of dataset ${name}`, 'one; only a text has windows')
  const inputShape = shapeAfter(dataset, wanted)
  requireFit(model, { name, inputShape, target: kind, classes: size })
  const normalize = normalization(dataset, wanted)
  return {
    ...described(dataset),
    inputShape,
    ...(inputShape === inputs.shape ? {} : { storedShape: [...inputs.shape] }),
    ...(inputs.inputType === 'U8' ? {} : { inputType: inputs.inputType }),
    classes: size,
    ...(kind === 'classes' ? {} : { target: kind }),
    ...(kind === 'values' || names === undefined || names.length > MAX_CLASS_NAMES
      ? {}
      : { classNames: names.map((text) => text.slice(0, MAX_NAME_LENGTH)) }),
    inputScale: inputs.inputScale,
    ...(normalize === undefined ? {} : { normalize }),
    ...(wanted.augment === undefined ? {} : { augment: wanted.augment }),
    train: [...dataset.train],
    validation: [...dataset.validation],
  }
}

/** (channels, height, width) after a crop. */
function shapeAfter({ name, inputs }: NamedDataset, { augment }: NamedChoice): number[] {
  const shape = inputs.shape as number[]
  if (augment === undefined) return shape
  const [channels = 0, height = 0, width = 0] = shape
  if (shape.length !== 3)
    throw refused(
      `images (channels, height, width) to augment in dataset ${name}`,
      `samples of [${shape.join(', ')}]; remove dataset.augment`,
    )
  if (augment.crop === undefined) return shape
  const [rows, columns] = augment.crop
  if (rows > height || columns > width)
    throw refused(
      `a crop of at most ${height} × ${width} pixels for dataset ${name}`,
      `${rows} × ${columns}; change dataset.augment.crop`,
    )
  return [channels, rows, columns]
}

function normalization({ name, inputs, statistics }: NamedDataset, wanted: NamedChoice): DatasetManifest['normalize'] {
  if (!(wanted.normalize ?? inputs.inputType === 'F32')) return undefined
  const { mean = [], deviation = [] } = statistics ?? {}
  if (mean.length === 0 || mean.length > MAX_NORMALIZED)
    throw refused(
      `1 to ${MAX_NORMALIZED} channels or columns to normalise in dataset ${name}`,
      `${inputs.shape[0]}; write "normalize": false in the job's dataset`,
    )
  // a column of one value becomes 0
  return { mean: [...mean], deviation: deviation.map((value) => (value > 0 ? value : 1)) }
}

function ofText(dataset: NamedDataset, wanted: NamedChoice, model: ModelSpec): DatasetManifest {
  const { name, targets } = dataset
  const { size, vocabulary, tokens } = targets
  if (wanted.augment !== undefined || wanted.normalize !== undefined)
    throw refused(`no augment and no normalize for the text ${name}`, 'one of them; remove it')
  const context = contextOf(model)
  requireAnswers(model, context, {
    text: `dataset ${name}`,
    tokens: size,
    what: vocabulary === undefined ? 'tokens' : 'characters',
  })
  if (targets.labelled !== undefined) return ofLabelled(dataset, wanted, context)
  const windows = (shards: readonly ShardRef[], count: number | undefined): ShardRef[] =>
    withWindows(shards, { context, count })
  const train = windows(dataset.train, wanted.windowsPerEpoch)
  if (train.length === 0)
    throw refused(
      `a text with more than ${context} tokens in dataset ${name}`,
      'a shorter one; use a longer text, or a model of a shorter context',
    )
  return {
    ...described(dataset),
    inputShape: [context],
    classes: size,
    ...(vocabulary === undefined ? {} : { vocabulary }),
    ...(tokens === undefined ? {} : { tokens }),
    inputScale: 1,
    train,
    validation: windows(dataset.validation, undefined),
  }
}

/** Samples of tokens with their targets: each is taken as it is. */
function ofLabelled(dataset: NamedDataset, wanted: NamedChoice, context: number): DatasetManifest {
  const { name, targets, train, validation } = dataset
  if (wanted.windowsPerEpoch !== undefined)
    throw refused(`no windowsPerEpoch for the samples of dataset ${name}`, 'one; only a running text has windows')
  if (targets.labelled !== context)
    throw refused(
      `a model with a context of ${targets.labelled} tokens for dataset ${name}`,
      `one of ${context}; change its context, or import the dataset again with --context ${context}`,
    )
  return {
    ...described(dataset),
    inputShape: [context],
    classes: targets.size,
    tokens: 'bpe',
    labelled: true,
    inputScale: 1,
    train: [...train],
    validation: [...validation],
  }
}

/** Shards of `samples` tokens → of this many windows in all, each its part; those without a window are left out. */
function withWindows(
  shards: readonly ShardRef[],
  { context, count }: { readonly context: number; readonly count: number | undefined },
): ShardRef[] {
  const long = shards.filter(({ samples }) => samples > context)
  const places = long.reduce((sum, { samples }) => sum + samples - context, 0)
  const all = count ?? Math.max(long.length, Math.floor(places / context))
  let [seen, given] = [0, 0]
  return long.flatMap((shard) => {
    seen += shard.samples - context
    const samples = Math.round((all * seen) / places) - given
    given += samples
    return samples > 0 ? [{ ...shard, samples }] : []
  })
}

function described({ name, format, sources }: NamedDataset): { readonly name: string; readonly source: string } {
  const files = sources.reduce((sum, source) => sum + source.files, 0)
  return { name, source: `${format}: ${files} ${files === 1 ? 'file' : 'files'}`.slice(0, MAX_SOURCE) }
}

/** All shards are among the coordinator's blobs when it resolves. */
export async function takeShards(dataset: NamedDataset, from: BlobStore, to: BlobStore): Promise<void> {
  for (const shard of shardsOf(dataset)) {
    if (await to.has(shard)) continue
    const bytes = await from.get(shard).catch((cause: unknown) => {
      throw missing(dataset.name, describeError(cause), cause)
    })
    if (bytes === undefined) throw missing(dataset.name, `no shard ${shard.slice(0, 12)}`)
    await to.put(bytes)
  }
}

function missing(name: string, found: string, cause?: unknown): GridError {
  return new GridError(
    'dataset-unreadable',
    `expected the shards of dataset ${name} in the data folder, got: ${found}; ` +
      `import it again with: starling dataset import ${name} PATH`,
    { cause },
  )
}

function refused(expected: string, got: string): GridError {
  return new GridError('job-invalid', `expected ${expected}, got ${got}`)
}

// A job that tunes an imported model: the model's form in place of its name, and its parameters among the coordinator's
// blobs. With adapters the parameters stay as they are, and volunteers fetch them; otherwise they are version 0.
import {
  isTuned,
  type ModelSpec,
  parameterLayout,
  type ParameterEntry,
  parseModelSpec,
  parseTuned,
  partName,
  readRows,
  rowsOf,
  tunedSpec,
} from '@starling-grid/model'
import {
  GridError,
  type JobSpec,
  MistakesError,
  readBaseManifest,
  readSafetensors,
  type Sha256,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { Catalog } from '../datasets/catalog.ts'
import { blobsOfModel, type ImportedModel, ModelCatalog } from '../models/model-catalog.ts'
import type { FoundStart } from './start.ts'

/** What is kept of it with a job. */
export type HeldBase = Pick<ImportedModel, 'name' | 'manifest' | 'shards'>

export interface HeldBlob {
  readonly sha256: Sha256
  readonly bytes: number
}

/** The manifest, whose size is no matter, and the shards. */
export function filesOf({ manifest, shards }: HeldBase): HeldBlob[] {
  return [{ ...manifest, bytes: 0 }, ...shards]
}

export interface FoundBase {
  readonly held: HeldBase
  /** where all of the model learns */
  readonly start: FoundStart | undefined
}

/**
 * The job with the whole form of its model; `base`: of one that was imported.
 * @throws GridError 'model-invalid' when there is no such model, 'job-invalid' with two beginnings, 'disk-failed'
 */
export async function withBase(
  spec: JobSpec,
  { catalog, blobs }: { readonly catalog: Catalog; readonly blobs: BlobStore },
): Promise<{ readonly spec: JobSpec; readonly base: FoundBase | undefined }> {
  if (!isTuned(spec.model)) return { spec, base: undefined }
  const tuned = parseTuned(spec.model)
  if (tuned.lora === undefined && spec.from !== undefined)
    throw new MistakesError('job-invalid', [
      {
        path: ['from'],
        expected: 'one beginning, the imported model',
        found: 'another beside it',
        hint: 'remove it, or tune adapters with `model.lora`',
      },
    ])
  const models = new ModelCatalog(catalog.dataDir)
  const model = await models.get(tuned.base)
  const from = await models.blobs()
  await takeBlobs(model, from, blobs)
  const whole = { ...spec, model: tunedSpec(tuned, model.config, model.manifest.sha256) }
  const { name, manifest, shards } = model
  const start = tuned.lora === undefined ? { parameters: await parametersOf(whole, model, from) } : undefined
  return { spec: whole, base: { held: { name, manifest, shards }, start } }
}

/** The model of a job, of which nothing is read or kept. @throws GridError 'model-invalid' */
export async function modelOf({ model }: Pick<JobSpec, 'model'>, { dataDir }: Catalog): Promise<ModelSpec> {
  if (!isTuned(model)) return parseModelSpec(model)
  const tuned = parseTuned(model)
  const { config, manifest } = await new ModelCatalog(dataDir).get(tuned.base)
  return parseModelSpec(tunedSpec(tuned, config, manifest.sha256))
}

/** All are among the coordinator's blobs when it resolves. */
async function takeBlobs(model: ImportedModel, from: BlobStore, to: BlobStore): Promise<void> {
  for (const name of blobsOfModel(model)) {
    if (await to.has(name)) continue
    const bytes = await from.get(name)
    if (bytes === undefined) throw missing(model.name)
    await to.put(bytes)
  }
}

async function parametersOf(spec: JobSpec, model: ImportedModel, blobs: BlobStore): Promise<Uint8Array> {
  const layout = parameterLayout(parseModelSpec(spec.model))
  const entries = new Map<string, ParameterEntry>(layout.entries.map((entry) => [entry.name, entry]))
  const parameters = new Float32Array(layout.total)
  const manifest = await blobs.get(model.manifest.sha256)
  if (manifest === undefined) throw missing(model.name)
  for (const { sha256, parts } of readBaseManifest(manifest).shards) {
    const bytes = await blobs.get(sha256)
    if (bytes === undefined) throw missing(model.name)
    const { tensors } = readSafetensors(bytes)
    for (const { name, row, rows } of parts) {
      const entry = entries.get(name)
      if (entry === undefined) throw missing(model.name)
      const { columns } = rowsOf(entry)
      parameters.set(
        readRows(partName(name, row), tensors, { length: rows * columns, columns }),
        entry.offset + row * columns,
      )
    }
  }
  return new Uint8Array(parameters.buffer)
}

function missing(name: string): GridError {
  return new GridError(
    'dataset-unreadable',
    `expected the shards of the model ${name} in the data folder, got none or others; ` +
      `delete and import it again: starling model delete ${name}`,
  )
}

// A language model in the form in which models are published, with seeded weights, and Tiny Shakespeare in its tokens:
// adapters beside it are what parity tunes.
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Catalog, importNamed } from '@starling-grid/coordinator/datasets'
import { importModel, ModelCatalog } from '@starling-grid/coordinator/models'
import type { JobSpec } from '@starling-grid/protocol'
import { ensureText } from './text-job.ts'

const CONTEXT = 64
const RANK = 8
/** Windows of a step: one for each of three members. */
const BATCH_BLOCKS = 3
const STEPS_PER_EPOCH = 100
/** Of the text: a few dozen windows, which the end of a run validates. */
const VALIDATION_SHARE = 0.002

/** A published model and a text in its tokens, as coordinators take them by name. */
export interface TunedImport {
  /** of the coordinator */
  readonly dataDir: string
  readonly model: string
  /** where the model's files are written, and their content by name */
  readonly published: string
  readonly files: ReadonlyMap<string, Uint8Array | string>
  readonly storage: Parameters<typeof importModel>[0]['storage']
  /** file of the text, which becomes the dataset `text` */
  readonly text: string
  readonly context: number
  readonly validationShare: number
}

export async function importTuned({ dataDir, published, files, ...wanted }: TunedImport): Promise<void> {
  await mkdir(published, { recursive: true })
  for (const [name, content] of files) await writeFile(join(published, name), content)
  const now = () => new Date().toISOString()
  const source = { name: wanted.model, folder: published, storage: wanted.storage }
  const { tokenizer = '', chatTemplate, special, ends } = await importModel(source, new ModelCatalog(dataDir), { now })
  const words = { tokenizer, chatTemplate, special, ends }
  const options = {
    csv: { header: true },
    table: { missing: 'error' },
    images: { grey: false },
    tokens: 'characters',
    chat: { words, context: wanted.context, pack: true },
  } as const
  const text = { name: 'text', paths: [wanted.text], validationShare: wanted.validationShare, seed: 0, options }
  await importNamed(text, new Catalog(dataDir), { now })
}

/** A llama of 20 million parameters and Tiny Shakespeare, for the job of `tunedJob`. */
export async function importLlama(dataDir: string, say: (text: string) => void): Promise<void> {
  // of tests alone, but for this
  const { publishedModel, SMALL_LLAMA } = await import('@starling-grid/volunteer/testing')
  const sizes = {
    hidden_size: 384,
    num_hidden_layers: 12,
    num_attention_heads: 6,
    head_dim: 64,
    intermediate_size: 1152,
  }
  await importTuned({
    dataDir,
    model: 'llama',
    published: join(dataDir, 'published'),
    files: publishedModel({ config: { ...SMALL_LLAMA, ...sizes } }),
    storage: 'f16',
    text: (await ensureText(dataDir, say)).path,
    context: CONTEXT,
    validationShare: VALIDATION_SHARE,
  })
}

interface TunedJobOptions {
  readonly stop: JobSpec['stop']
  readonly seed: number
  readonly minVolunteers: number
  readonly optimizer: JobSpec['optimizer']
}

export function tunedJob({ minVolunteers, ...options }: TunedJobOptions): JobSpec {
  return {
    name: 'Adapters on a text',
    owner: 'Starling',
    purpose: 'Tunes adapters beside a llama of 20 million parameters.',
    model: { base: 'llama', context: CONTEXT, lora: { rank: RANK } },
    dataset: { name: 'text', windowsPerEpoch: STEPS_PER_EPOCH * BATCH_BLOCKS },
    blockSamples: 1,
    batchBlocks: BATCH_BLOCKS,
    evaluate: { everyEpochs: 1000 },
    mode: 'ring',
    volunteers: { min: minVolunteers },
    ...options,
  }
}

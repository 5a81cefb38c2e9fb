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

/** The form of a llama of 20 million parameters, whose tokens are bytes. */
export const LLAMA_20M = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: 262,
  hidden_size: 384,
  num_hidden_layers: 12,
  num_attention_heads: 6,
  num_key_value_heads: 2,
  head_dim: 64,
  intermediate_size: 1152,
  hidden_act: 'silu',
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
  torch_dtype: 'float32',
  eos_token_id: 257,
} as const

/** Imports model and text into `folder`, whose coordinator can then take the job of `tunedJob`. */
export async function importTuned(folder: string, say: (text: string) => void): Promise<void> {
  // of tests alone, but for this
  const { publishedModel } = await import('@starling-grid/volunteer/testing')
  const published = join(folder, 'published')
  await mkdir(published, { recursive: true })
  for (const [name, content] of publishedModel({ config: LLAMA_20M })) await writeFile(join(published, name), content)
  const now = () => new Date().toISOString()
  const model = await importModel({ name: 'llama', folder: published, storage: 'f16' }, new ModelCatalog(folder), {
    now,
  })
  const { path } = await ensureText(folder, say)
  const { tokenizer = '', chatTemplate, special, ends } = model
  const words = { tokenizer, chatTemplate, special, ends }
  const options = {
    csv: { header: true },
    table: { missing: 'error' },
    images: { grey: false },
    tokens: 'characters',
    chat: { words, context: CONTEXT, pack: true },
  } as const
  await importNamed(
    { name: 'text', paths: [path], validationShare: VALIDATION_SHARE, seed: 0, options },
    new Catalog(folder),
    {
      now,
    },
  )
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

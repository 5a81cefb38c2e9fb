// Published language models for `predict` and `export`: a folder by itself or with adapters, adapters with the folder
// of their model, or the adapters of a job, whose coordinator has the rest.
import { readFile, stat } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import type { BaseOfAdapters, CoordinatorApi, ModelFile } from '@starling-grid/client'
import { openShardCache } from '@starling-grid/client-node/shard-cache'
import { formOf, PublishedFolder, valuesOf } from '@starling-grid/coordinator/models'
import {
  type CausalLmConfig,
  fixedEntries,
  floatValues,
  fromPublished,
  type ModelSpec,
  parameterLayout,
  parseModelSpec,
  readModelFile,
  tunedParts,
} from '@starling-grid/model'
import { describeError, GridError, type ModelSignature, readSafetensors } from '@starling-grid/protocol'
import { type FrozenSource, openBaseModel } from '@starling-grid/volunteer/language'

export interface LanguageModel {
  readonly model: ModelFile
  readonly base: BaseOfAdapters | undefined
  /** The frozen part is read: its files are not needed any more. */
  close(): Promise<void>
}

/** Places of a folder's model while it writes; its own limit may be larger than memory. */
const MOST_CONTEXT = 1024
/** Characters of a folder's name in that of its model. */
const MAX_NAME = 60

export async function isPublishedFolder(path: string): Promise<boolean> {
  return stat(join(path, 'config.json')).then(
    (found) => found.isFile(),
    () => false,
  )
}

/** `adapters`: a folder as PEFT writes it. @throws GridError 'dataset-unreadable', 'model-invalid' */
export async function modelOfFolder(path: string, adapters: string | undefined): Promise<LanguageModel> {
  const published = await PublishedFolder.open(path)
  const { config } = formOf(published)
  const { tokenizer, chatTemplate, special, ends } = await published.tokenizerFiles()
  const spec = specOf(path, config, adapters === undefined ? { frozen: true } : { lora: await loraIn(adapters) })
  const model: ModelFile = {
    spec,
    signature: signatureFor(spec, config),
    ...(tokenizer === undefined ? {} : { tokenizer }),
    chat: { ...(chatTemplate === undefined ? {} : { template: chatTemplate }), special, ends: [...ends] },
    parameters: adapters === undefined ? new Float32Array() : await adaptersIn(adapters, spec),
  }
  return { model, base: { frozen: frozenIn(published, spec), ends }, close: () => published.close() }
}

function specOf(path: string, config: CausalLmConfig, learning: object): ModelSpec {
  const name = basename(resolve(path))
    .replaceAll(/[^A-Za-z0-9_]/g, '_')
    .slice(0, MAX_NAME)
  return parseModelSpec({
    name: /^[A-Za-z_]/.test(name) ? name : `_${name}`,
    input: [Math.min(MOST_CONTEXT, config.max_position_embeddings)],
    layers: [{ type: 'causal_lm', config, ...learning }],
  })
}

function signatureFor({ input }: ModelSpec, { vocab_size: classes }: CausalLmConfig): ModelSignature {
  return { inputShape: [...input], inputScale: 1, classes, tokens: 'bpe' }
}

/** A model file of adapters, with the folder of the model that they belong to. */
export async function modelOfFile(file: string, base: string): Promise<LanguageModel> {
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw unreadable(file, cause)
  })
  const model = readModelFile(bytes, file)
  const published = await PublishedFolder.open(base)
  const { config } = formOf(published)
  const own = tunedParts(model.spec)?.config
  if (own === undefined || JSON.stringify(own) !== JSON.stringify(config))
    throw new GridError(
      'model-invalid',
      `expected the folder of the model that ${file} was tuned from, got another in ${base}; name that one with --base`,
    )
  const { ends } = await published.tokenizerFiles()
  return { model, base: { frozen: frozenIn(published, model.spec), ends }, close: () => published.close() }
}

/** A model of a job, of which the coordinator has the frozen part. */
export async function modelOfJob(model: ModelFile, api: CoordinatorApi): Promise<LanguageModel> {
  const places = {
    fetchBytes: (name: Parameters<CoordinatorApi['shard']>[0]) => api.shard(name),
    cache: openShardCache(),
  }
  const frozen = await openBaseModel(model.spec, places)
  return { model, base: frozen && { frozen, ends: model.chat?.ends ?? [] }, close: async () => undefined }
}

function frozenIn(published: PublishedFolder, spec: ModelSpec): FrozenSource {
  const entries = new Map(fixedEntries(spec).map((entry) => [entry.name, entry]))
  return {
    async read(name) {
      const entry = entries.get(name)
      if (entry === undefined) throw new Error(`internal: no frozen parameter ${name}`)
      return valuesOf(published, entry)
    },
  }
}

async function loraIn(folder: string): Promise<object> {
  const file = join(folder, 'adapter_config.json')
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw unreadable(file, cause)
  })
  const {
    peft_type: type,
    r: rank,
    lora_alpha: alpha,
    target_modules: targets,
    ...rest
  } = JSON.parse(text) as Record<string, unknown>
  if (type !== 'LORA' || rest['use_rslora'] === true || rest['use_dora'] === true)
    throw new GridError('unsupported', `expected plain LoRA adapters in ${file}, got ${String(type)} or a variant`)
  return { rank, alpha, targets }
}

async function adaptersIn(folder: string, spec: ModelSpec): Promise<Float32Array> {
  const file = join(folder, 'adapter_model.safetensors')
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw unreadable(file, cause)
  })
  const { tensors } = readSafetensors(bytes)
  const { total, entries } = parameterLayout(spec)
  const flat = new Float32Array(total)
  for (const entry of entries) {
    const tensor = tensors.get(entry.name)
    if (tensor === undefined || tensor.shape.join() !== entry.shape.join())
      throw new GridError(
        'model-invalid',
        `expected ${entry.name} [${entry.shape.join(', ')}] in ${file}, ` +
          `got ${tensor === undefined ? 'no such tensor' : `[${tensor.shape.join(', ')}]`}; ` +
          'take the adapters of this model',
      )
    flat.set(fromPublished(entry, floatValues(tensor, entry.name)), entry.offset)
  }
  return flat
}

function unreadable(file: string, cause: unknown): GridError {
  return new GridError(
    'dataset-unreadable',
    `expected a file that can be read, got ${file} (${describeError(cause)}); name another`,
    { cause },
  )
}

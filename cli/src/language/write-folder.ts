// What a tuned language model is exported as: a folder of adapters as PEFT writes it, or the whole model as Hugging
// Face publishes it.
import { mkdir, open, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ModelFile } from '@starling-grid/client'
import { adapterConfig, mergedTensors, parameterLayout, publishedConfig, tunedParts } from '@starling-grid/model'
import {
  describeError,
  floatTensor,
  GridError,
  safetensorsStart,
  type StoredTensor,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { FrozenSource } from '@starling-grid/volunteer/language'

const OWN_FILE = 0o600

export interface WrittenFolder {
  readonly file: string
  readonly bytes: number
}

/** `adapter_model.safetensors` and `adapter_config.json`. @throws GridError 'usage' of another model */
export async function writeAdapters(folder: string, { spec, parameters }: ModelFile): Promise<WrittenFolder> {
  const lora = tunedParts(spec)?.lora
  if (lora === undefined)
    throw new GridError('usage', `expected a model with adapters, got ${spec.name}; use --format merged or safetensors`)
  const tensors = new Map<string, StoredTensor>(
    parameterLayout(spec).entries.map(({ name, shape, offset, length }) => [
      name,
      floatTensor(shape, parameters.subarray(offset, offset + length)),
    ]),
  )
  const bytes = writeSafetensors(tensors, { format: 'pt' })
  await written(folder, async () => {
    await whole(join(folder, 'adapter_model.safetensors'), bytes)
    await whole(join(folder, 'adapter_config.json'), json(adapterConfig(spec, lora, spec.name)))
  })
  return { file: folder, bytes: bytes.byteLength }
}

/** `model.safetensors`, `config.json` and what makes text to tokens. @throws GridError 'usage' of another model */
export async function writeMerged(
  folder: string,
  { spec, parameters, tokenizer, chat }: ModelFile,
  frozen: FrozenSource | undefined,
): Promise<WrittenFolder> {
  const parts = tunedParts(spec)
  if (parts === undefined)
    throw new GridError('usage', `expected a published language model, got ${spec.name}; use --format safetensors`)
  const tensors = mergedTensors(spec, parameters, (name) => {
    if (frozen === undefined) throw new Error(`internal: nothing gives ${name}`)
    return frozen.read(name)
  })
  let bytes = 0
  await written(folder, async () => {
    const start = safetensorsStart(
      new Map(tensors.map(({ name, shape }) => [name, { dtype: 'F32', shape } as const])),
      { format: 'pt' },
    )
    const file = join(folder, 'model.safetensors')
    const out = await open(`${file}.unfinished`, 'w', OWN_FILE)
    try {
      await out.writeFile(start)
      bytes = start.byteLength
      for (const tensor of tensors) {
        const values = await tensor.values()
        await out.writeFile(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
        bytes += values.byteLength
      }
    } finally {
      await out.close()
    }
    await rename(`${file}.unfinished`, file)
    await whole(join(folder, 'config.json'), json(publishedConfig(parts.config)))
    if (tokenizer !== undefined) await whole(join(folder, 'tokenizer.json'), new TextEncoder().encode(tokenizer))
    if (chat !== undefined)
      await whole(join(folder, 'tokenizer_config.json'), json({ ...chat.special, chat_template: chat.template }))
    if (chat !== undefined) await whole(join(folder, 'generation_config.json'), json({ eos_token_id: chat.ends }))
  })
  return { file: folder, bytes }
}

function json(value: object): Uint8Array {
  return new TextEncoder().encode(`${JSON.stringify(value, null, 2)}\n`)
}

async function whole(file: string, bytes: Uint8Array): Promise<void> {
  await writeFile(`${file}.unfinished`, bytes, { mode: OWN_FILE })
  await rename(`${file}.unfinished`, file)
}

async function written(folder: string, write: () => Promise<void>): Promise<void> {
  try {
    await mkdir(folder, { recursive: true })
    await write()
  } catch (cause) {
    await rm(join(folder, 'model.safetensors.unfinished'), { force: true }).catch(() => undefined)
    if (cause instanceof GridError) throw cause
    throw new GridError(
      'folder-unwritable',
      `expected a folder that can be written, got ${folder} (${describeError(cause)}); name another with --out`,
      { cause },
    )
  }
}

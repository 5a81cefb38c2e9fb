// A published language model as Hugging Face's folders have it: config.json, model*.safetensors, tokenizer.json.
// Tensors are read row by row: a model may be larger than memory.
import { open, readdir, readFile, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { floatValues } from '@starling-grid/model'
import {
  describeError,
  GridError,
  MAX_SAFETENSORS_HEADER_BYTES,
  type SafetensorsForm,
  safetensorsForms,
} from '@starling-grid/protocol'

/** Bytes of config.json and the other small files. */
const MAX_JSON_BYTES = 4 * 2 ** 20
/** Bytes of a tokenizer.json: that of 250,000 tokens has 20 MB. */
const MAX_TOKENIZER_BYTES = 64 * 2 ** 20
const INDEX = 'model.safetensors.index.json'
const PREFIX_BYTES = 8

interface PlacedTensor extends SafetensorsForm {
  readonly file: string
}

export interface TokenizerFiles {
  /** JSON of tokenizer.json */
  readonly tokenizer?: string
  /** of Jinja: how a conversation becomes text */
  readonly chatTemplate?: string
  /** special tokens by their role: `bos_token`, `eos_token` … */
  readonly special: Readonly<Record<string, string>>
  /** tokens that end an answer */
  readonly ends: readonly number[]
}

export class PublishedFolder {
  readonly path: string
  /** config.json */
  readonly config: Readonly<Record<string, unknown>>
  readonly #tensors: ReadonlyMap<string, PlacedTensor>
  readonly #files = new Map<string, Promise<FileHandle>>()

  /** @throws GridError 'dataset-unreadable' when it is no such folder */
  static async open(path: string): Promise<PublishedFolder> {
    const config = await jsonIn(path, 'config.json')
    const tensors = new Map<string, PlacedTensor>()
    for (const file of await weightFiles(path))
      for (const [name, form] of await formsIn(path, file)) tensors.set(name, { ...form, file })
    if (tensors.size === 0) throw unreadable(path, 'its safetensors files hold no tensors')
    return new PublishedFolder(path, config, tensors)
  }

  private constructor(
    path: string,
    config: Readonly<Record<string, unknown>>,
    tensors: ReadonlyMap<string, PlacedTensor>,
  ) {
    this.path = path
    this.config = config
    this.#tensors = tensors
  }

  get names(): Iterable<string> {
    return this.#tensors.keys()
  }

  /** undefined: it has no such tensor */
  shapeOf(name: string): readonly number[] | undefined {
    return this.#tensors.get(name)?.shape
  }

  /** bytes of all tensors */
  get bytes(): number {
    return [...this.#tensors.values()].reduce((sum, { begin, end }) => sum + end - begin, 0)
  }

  /** Some rows as f32; of a vector, which is one row, row 0. @throws GridError 'unsupported', 'dataset-unreadable' */
  async rows(name: string, from: number, count: number): Promise<Float32Array> {
    const tensor = this.#tensors.get(name)
    if (tensor === undefined) throw new Error(`internal: no tensor ${name} in ${this.path}`)
    const { shape, begin, end, dtype, file } = tensor
    const all = shape.slice(0, -1).reduce((product, size) => product * size, 1)
    const rowBytes = (end - begin) / all
    const data = new Uint8Array(count * rowBytes)
    await readExactly(await this.#fileOf(file), data, begin + from * rowBytes)
    return floatValues({ dtype, shape: [count, shape.at(-1) ?? 1], data }, name)
  }

  async close(): Promise<void> {
    for (const file of this.#files.values()) await (await file).close()
    this.#files.clear()
  }

  async tokenizerFiles(): Promise<TokenizerFiles> {
    const tokenizer = await textIn(this.path, 'tokenizer.json', MAX_TOKENIZER_BYTES)
    const about = await optionalJson(this.path, 'tokenizer_config.json')
    const generation = await optionalJson(this.path, 'generation_config.json')
    const ownFile = await textIn(this.path, 'chat_template.jinja', MAX_JSON_BYTES)
    const chatTemplate = ownFile ?? templateIn(about['chat_template'])
    return {
      ...(tokenizer === undefined ? {} : { tokenizer }),
      ...(chatTemplate === undefined ? {} : { chatTemplate }),
      special: specialTokens(about),
      ends: endsIn(generation['eos_token_id'] ?? this.config['eos_token_id']),
    }
  }

  #fileOf(file: string): Promise<FileHandle> {
    const known = this.#files.get(file) ?? open(join(this.path, file))
    this.#files.set(file, known)
    return known
  }
}

/** One file, or those that the index names. */
async function weightFiles(path: string): Promise<string[]> {
  const files = await readdir(path).catch((cause: unknown) => {
    throw unreadable(path, describeError(cause))
  })
  if (files.includes(INDEX)) {
    const { weight_map: map } = await jsonIn(path, INDEX)
    if (typeof map !== 'object' || map === null) throw unreadable(path, `${INDEX} has no weight_map`)
    const named = [...new Set(Object.values(map as Record<string, unknown>).map(String))]
    const strange = named.find((name) => !files.includes(name))
    if (strange !== undefined)
      throw unreadable(path, `${INDEX} names ${JSON.stringify(strange.slice(0, 80))}, which is not there`)
    return named.sort()
  }
  const found = files.filter((file) => /^model.*\.safetensors$/.test(file)).sort()
  if (found.length > 0) return found
  throw unreadable(path, 'it has no model.safetensors')
}

/** Name → where its bytes are in the file. */
async function formsIn(path: string, name: string): Promise<ReadonlyMap<string, SafetensorsForm>> {
  const file = await open(join(path, name))
  try {
    const { size } = await file.stat()
    const prefix = new Uint8Array(PREFIX_BYTES)
    await readExactly(file, prefix, 0)
    const length = new DataView(prefix.buffer).getBigUint64(0, true)
    const bytes = PREFIX_BYTES + Number(length > BigInt(MAX_SAFETENSORS_HEADER_BYTES) ? 0n : length)
    const start = new Uint8Array(Math.min(size, bytes))
    await readExactly(file, start, 0)
    return safetensorsForms(start, size)
  } catch (cause) {
    throw unreadable(path, `${name}: ${describeError(cause)}`, cause)
  } finally {
    await file.close()
  }
}

async function readExactly(file: FileHandle, into: Uint8Array, at: number): Promise<void> {
  let done = 0
  while (done < into.length) {
    const { bytesRead } = await file.read(into, done, into.length - done, at + done)
    if (bytesRead === 0)
      throw new GridError('dataset-unreadable', `expected ${into.length} bytes at ${at}, got ${done}; fetch it again`)
    done += bytesRead
  }
}

async function jsonIn(path: string, name: string): Promise<Record<string, unknown>> {
  const text = await textIn(path, name, MAX_JSON_BYTES)
  if (text === undefined) throw unreadable(path, `it has no ${name}`)
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {
    // refused below, like another value
  }
  throw unreadable(path, `${name} is no JSON object`)
}

async function optionalJson(path: string, name: string): Promise<Record<string, unknown>> {
  return (await textIn(path, name, MAX_JSON_BYTES)) === undefined ? {} : jsonIn(path, name)
}

/** undefined: there is no such file */
async function textIn(path: string, name: string, most: number): Promise<string | undefined> {
  const bytes = await readFile(join(path, name)).catch(() => undefined)
  if (bytes !== undefined && bytes.byteLength > most)
    throw unreadable(path, `${name} has ${bytes.byteLength} bytes, the limit is ${most}`)
  return bytes?.toString('utf8')
}

/** One template, or the default of several. */
function templateIn(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (!Array.isArray(value)) return undefined
  const named = value as readonly { readonly name?: unknown; readonly template?: unknown }[]
  const found = named.find(({ name }) => name === 'default') ?? named[0]
  return typeof found?.template === 'string' ? found.template : undefined
}

function specialTokens(about: Readonly<Record<string, unknown>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(about).flatMap(([key, value]) => {
      const text = typeof value === 'object' && value !== null ? (value as { content?: unknown }).content : value
      return key.endsWith('_token') && typeof text === 'string' ? [[key, text]] : []
    }),
  )
}

function endsIn(value: unknown): number[] {
  return (Array.isArray(value) ? value : [value]).filter((id): id is number => Number.isInteger(id) && id >= 0)
}

function unreadable(path: string, found: string, cause?: unknown): GridError {
  return new GridError(
    'dataset-unreadable',
    `expected a folder with config.json and model.safetensors, as Hugging Face publishes models, got ${path}: ` +
      `${found}; name another folder`,
    cause === undefined ? undefined : { cause },
  )
}

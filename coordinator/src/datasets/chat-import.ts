// JSON lines of conversations, prompts with completions, or texts, as samples of tokens with their targets, in the
// tokens of an imported model.
import { readFile } from 'node:fs/promises'
import { randomWords } from '@starling-grid/model'
import { describeError, GridError, type ShardRef, writeSafetensors } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { ChatTokens, type MarkedTokens } from './chat-tokens.ts'
import { chatForm, type ChatImport } from './chat-words.ts'
import type { TargetForm } from './forms.ts'
import type { Imported, ImportTools } from './import-request.ts'
import { packed, type PackedSamples } from './packed-samples.ts'
import { datasetUnreadable } from './samples.ts'
import type { SourceMark } from './sources.ts'

/** Bytes of all files: their tokens are held in memory while they are packed. */
const MAX_BYTES = 512 * 2 ** 20
/** Tokens of one shard: 2 MiB of tokens, and as much of targets. */
const SHARD_TOKENS = 512 * 1024
/** Bytes of a tokenizer.json that exported models carry, in their header of 16 MiB. */
const MAX_CARRIED_BYTES = 12 * 2 ** 20

export async function importChatFiles(parts: ImportTools & { readonly chat: ChatImport }): Promise<Imported> {
  const { request, marks, chat, blobs, watch } = parts
  const tokens = new ChatTokens(chat.words)
  const bytes = bytesOf(marks.train) + bytesOf(marks.validation)
  if (bytes > MAX_BYTES)
    throw datasetUnreadable(
      request.paths.join(', '),
      `has ${bytes} bytes, the limit is ${MAX_BYTES}`,
      'Import it in parts.',
    )
  const read: MarkedTokens[] = mixed(await examplesOf(marks.train, tokens), request.seed)
  const given = await examplesOf(marks.validation, tokens)
  const share = given.length > 0 ? 0 : request.validationShare
  const split = Math.min(read.length - 1, Math.ceil(share * read.length))
  const validation = packed(given.length > 0 ? given : read.slice(0, split), chat)
  const train = packed(read.slice(split), chat)
  if (train.count === 0)
    throw datasetUnreadable(request.paths.join(', '), 'holds no example with anything to learn', 'Name other files.')
  watch.onProgress?.(bytes, bytes, train.count + validation.count)
  return {
    format: `examples of ${chat.context} tokens${train.cut > 0 ? `, ${train.cut} of them cut` : ''}`,
    inputs: { shape: [chat.context], inputType: 'U8', inputScale: 1 },
    targets: targetsOf(tokens, chat),
    dropped: train.dropped + validation.dropped,
    train: await written(train, chat.context, blobs),
    validation: await written(validation, chat.context, blobs),
  }
}

function bytesOf(marks: readonly SourceMark[]): number {
  return marks.flatMap(({ files }) => files).reduce((sum, { bytes }) => sum + bytes, 0)
}

function targetsOf(tokens: ChatTokens, { words, context }: ChatImport): TargetForm {
  const carried = Buffer.byteLength(JSON.stringify(words.tokenizer)) <= MAX_CARRIED_BYTES
  const tokenizer = carried ? { tokenizer: words.tokenizer } : {}
  return {
    kind: 'tokens',
    size: tokens.size,
    tokens: 'bpe',
    labelled: context,
    chat: chatForm({ words }),
    ...tokenizer,
  }
}

async function examplesOf(marks: readonly SourceMark[], tokens: ChatTokens): Promise<MarkedTokens[]> {
  const found: MarkedTokens[] = []
  for (const { path } of marks.flatMap(({ files }) => files)) {
    const text = decoded(await readFile(path), path)
    found.push(...rowsIn(text, path, tokens))
  }
  return found
}

function rowsIn(text: string, path: string, tokens: ChatTokens): MarkedTokens[] {
  return text.split('\n').flatMap((line, i) => {
    if (line.trim() === '') return []
    return located(() => tokens.row(jsonOf(line)), `${path}:${i + 1}`)
  })
}

/** @throws GridError 'dataset-unreadable' naming file and line */
function located<T>(read: () => T, place: string): T {
  try {
    return read()
  } catch (cause) {
    throw new GridError('dataset-unreadable', `${place}: ${describeError(cause)}`, { cause })
  }
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    throw new GridError('dataset-unreadable', 'expected a JSON object on each line, got other text')
  }
}

function decoded(bytes: Buffer, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (cause) {
    throw datasetUnreadable(path, 'is not UTF-8', 'Name files of text.', cause)
  }
}

/** Fisher and Yates, by the seed. */
function mixed<T>(values: readonly T[], seed: number): T[] {
  const order = [...values]
  const word = randomWords(seed, 0)
  for (let i = order.length - 1; i > 0; i--) {
    const j = word(i) % (i + 1)
    const [a, b] = [order[i], order[j]]
    if (a === undefined || b === undefined) continue
    order[i] = b
    order[j] = a
  }
  return order
}

async function written({ count, x, y }: PackedSamples, context: number, blobs: BlobStore): Promise<ShardRef[]> {
  const each = Math.max(1, Math.floor(SHARD_TOKENS / context))
  const refs: ShardRef[] = []
  for (let from = 0; from < count; from += each) {
    const samples = Math.min(each, count - from)
    const part = (values: Int32Array): Uint8Array =>
      new Uint8Array(values.slice(from * context, (from + samples) * context).buffer)
    const shape = [samples, context]
    const bytes = writeSafetensors(
      new Map([
        ['x', { dtype: 'I32', shape, data: part(x) }],
        ['y', { dtype: 'I32', shape, data: part(y) }],
      ]),
    )
    refs.push({ sha256: await blobs.put(bytes), bytes: bytes.byteLength, samples })
  }
  return refs
}

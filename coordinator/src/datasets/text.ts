// A text file as a dataset. Its characters in the order of their code points are the vocabulary, and a token is a
// character's index in it (as nanoGPT prepares shakespeare_char). The first nine tenths train, the rest validates.
import { readFile, stat } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import {
  type DatasetManifest,
  describeError,
  MAX_VOCABULARY_LENGTH,
  type ShardRef,
  windowPlaces,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { datasetUnreadable, type OnProgress } from './samples.ts'

/** Bytes of one file: what is read is held several times over while it is cut. */
const MAX_TEXT_BYTES = 128 * 2 ** 20
const TRAINING_SHARE = 0.9
/** Tokens of one shard, 1 MiB as U16. */
const SHARD_TOKENS = 512 * 1024
/** Characters of a dataset's name in the manifest. */
const MAX_NAME = 80
const CURE = 'Name a file of plain text in UTF-8.'

export interface Text {
  readonly name: string
  /** each character once, in the order of code points */
  readonly vocabulary: string
  /** one number for each character of the file */
  readonly tokens: Uint16Array<ArrayBuffer>
}

/** @throws GridError('dataset-unreadable') */
export async function readText(path: string): Promise<Text> {
  const text = await decode(path)
  const characters = [...new Set(text)].sort((a, b) => codePoint(a) - codePoint(b))
  if (characters.length === 0) throw datasetUnreadable(path, 'is empty', CURE)
  const vocabulary = characters.join('')
  if (vocabulary.length > MAX_VOCABULARY_LENGTH)
    throw datasetUnreadable(
      path,
      `holds ${characters.length} different characters, the limit is ${MAX_VOCABULARY_LENGTH}`,
      'Use a text of fewer scripts.',
    )
  const numbers = new Map(characters.map((character, number) => [character, number]))
  const tokens = new Uint16Array(text.length) // a character has one or two units, so this is enough
  let length = 0
  for (const character of text) tokens[length++] = numbers.get(character) ?? 0
  return { name: basename(resolve(path)).slice(0, MAX_NAME), vocabulary, tokens: tokens.slice(0, length) }
}

function codePoint(character: string): number {
  return character.codePointAt(0) ?? 0
}

async function decode(path: string): Promise<string> {
  try {
    const file = await stat(path)
    if (!file.isFile()) throw datasetUnreadable(path, 'is not a file', CURE)
    if (file.size > MAX_TEXT_BYTES)
      throw datasetUnreadable(path, `has ${file.size} bytes, the limit is ${MAX_TEXT_BYTES}`, 'Use a part of it.')
    return new TextDecoder('utf-8', { fatal: true }).decode(await readFile(path))
  } catch (cause) {
    if (cause instanceof TypeError) throw datasetUnreadable(path, 'is not UTF-8', CURE, cause)
    if (cause instanceof Error && 'errno' in cause)
      throw datasetUnreadable(path, `cannot be read (${describeError(cause)})`, CURE, cause)
    throw cause
  }
}

export interface TextOptions {
  /** tokens of one sample */
  readonly context: number
  readonly windowsPerEpoch?: number | undefined
  readonly onProgress?: OnProgress
}

/**
 * @throws GridError('disk-failed'), GridError('dataset-unreadable') when a part of the text is shorter than a sample
 * and its target
 */
export async function storeText(
  { name, vocabulary, tokens }: Text,
  store: BlobStore,
  { context, windowsPerEpoch, onProgress = () => undefined }: TextOptions,
): Promise<DatasetManifest> {
  const border = Math.floor(tokens.length * TRAINING_SHARE)
  const parts = [tokens.subarray(0, border), tokens.subarray(border)] as const
  for (const [part, what] of [
    [parts[0], 'train on'],
    [parts[1], 'validate with'],
  ] as const)
    if (part.length <= context)
      throw datasetUnreadable(
        name,
        `has ${part.length} characters to ${what}, and a sample of the model takes ${context} and one more`,
        'Use a longer text, or a model of a shorter context.',
      )
  let done = 0
  const write = async (part: Uint16Array<ArrayBuffer>, windows: number | undefined) => {
    const refs: ShardRef[] = []
    for (const { shard, samples } of cut(part, context, windows)) {
      const bytes = writeSafetensors(
        new Map([['tokens', { dtype: 'U16', shape: [shard.length], data: new Uint8Array(shard.slice().buffer) }]]),
      )
      refs.push({ sha256: await store.put(bytes), bytes: bytes.byteLength, samples })
      onProgress({ stage: 'writing shards', done: (done += shard.length), total: tokens.length })
    }
    return refs
  }
  return {
    name,
    source: `${tokens.length} characters of text, ${[...vocabulary].length} different ones`,
    inputShape: [context],
    classes: [...vocabulary].length,
    vocabulary,
    inputScale: 1,
    train: await write(parts[0], windowsPerEpoch),
    validation: await write(parts[1], undefined),
  }
}

interface Cut {
  readonly shard: Uint16Array<ArrayBuffer>
  readonly samples: number
}

/** Shards of about equal size, each with the beginning of the next, so that windows across a border are seen. */
function cut(
  part: Uint16Array<ArrayBuffer>,
  context: number,
  windows = Math.floor(windowPlaces({ tokens: part.length, context }) / context) || 1,
): Cut[] {
  const places = windowPlaces({ tokens: part.length, context })
  const count = Math.min(Math.ceil(places / SHARD_TOKENS), windows)
  const border = (i: number, of: number) => Math.floor((i * of) / count)
  return Array.from({ length: count }, (_, i) => ({
    shard: part.subarray(border(i, places), border(i + 1, places) + context),
    samples: border(i + 1, windows) - border(i, windows),
  }))
}

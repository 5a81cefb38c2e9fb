// Text of any length as tokens: characters, bytes, or the pieces of a tokenizer.json. The first nine tenths of each
// file train unless other files validate. Windows are cut when a job names its context (named.ts).
import { open, readFile, type FileHandle } from 'node:fs/promises'
import { basename } from 'node:path'
import { Tokenizer } from '@huggingface/tokenizers'
import { type ChatForm, describeError, MAX_VOCABULARY_LENGTH, writeSafetensors } from '@starling-grid/protocol'
import { chatForm } from './chat-words.ts'
import type { TargetForm } from './forms.ts'
import type { Imported, ImportTools } from './import-request.ts'
import type { ImportState } from './import-state.ts'
import { BEGINNING, type SplitPart, RUN_BYTES } from './readers/reader.ts'
import { datasetUnreadable } from './samples.ts'

/** Tokens from which a shard is written: 1 MiB as U16. */
const SHARD_TOKENS = 512 * 1024
/** Bytes of a tokenizer.json: that of 250,000 tokens has 20 MB. */
const MAX_TOKENIZER_BYTES = 64 * 2 ** 20
/** Bytes of one that exported models carry, in their header of 16 MiB: that of 50,000 tokens has 2 MB. */
const MAX_CARRIED_BYTES = 12 * 2 ** 20
const U16_TOKENS = 65_536
const CURE = 'Name files of plain text in UTF-8, or use --tokens bytes.'

interface TextEncoding {
  readonly target: TargetForm
  encode(bytes: Buffer, path: string): ArrayLike<number>
  /** for the next process */
  readonly state?: unknown
}

interface TextSegment {
  readonly path: string
  readonly from: number
  readonly to: number
}

export async function importTextFiles(parts: ImportTools & { readonly state: ImportState }): Promise<Imported> {
  const segments = await segmentsOf(parts)
  const encoding = await encodingOf(parts, [...segments.train, ...segments.validation])
  let state: ImportState = { ...parts.state, reader: encoding.state }
  for (const part of ['train', 'validation'] as const) {
    if (state.part === 'validation' && part === 'train') continue
    state = await readPart(
      parts,
      { ...state, part, place: state.part === part ? state.place : BEGINNING },
      {
        segments: segments[part],
        encoding,
      },
    )
  }
  if (state.train.length === 0) throw datasetUnreadable(parts.request.paths.join(', '), 'holds no text', CURE)
  return {
    format: `text of ${encoding.target.tokens ?? 'characters'}`,
    inputs: { shape: [1], inputType: 'U8', inputScale: 1 },
    targets: encoding.target,
    dropped: 0,
    train: state.train,
    validation: state.validation,
  }
}

interface TextSource {
  readonly segments: readonly TextSegment[]
  readonly encoding: TextEncoding
}

async function readPart(
  parts: ImportTools,
  begun: ImportState,
  { segments, encoding }: TextSource,
): Promise<ImportState> {
  const { blobs, file, watch } = parts
  const { part } = begun
  const total = totalBytes(parts)
  const isWide = encoding.target.size > U16_TOKENS
  let state = begun
  let runs: ArrayLike<number>[] = []
  let [tokens, bytes] = [0, 0]
  const flush = async (next: ImportState['place']): Promise<void> => {
    const written = [...state[part]]
    if (tokens > 0) {
      const shard = shardOf(runs, tokens, isWide)
      written.push({ sha256: await blobs.put(shard), bytes: shard.byteLength, samples: tokens })
    }
    state = { ...state, place: next, bytes: state.bytes + bytes, [part]: written }
    await file.write(state)
    runs = []
    tokens = 0
    bytes = 0
  }
  for await (const run of runsOf(segments, state.place)) {
    const encoded = encoding.encode(run.bytes, run.path)
    runs.push(encoded)
    tokens += encoded.length
    bytes += run.bytes.byteLength
    if (tokens >= SHARD_TOKENS) await flush(run.next)
    watch.onProgress?.(state.bytes + bytes, total, countTokens(state) + tokens)
  }
  await flush({ file: segments.length, offset: 0, row: 0 })
  return state
}

function totalBytes({ marks }: ImportTools): number {
  return [...marks.train, ...marks.validation].flatMap(({ files }) => files).reduce((sum, file) => sum + file.bytes, 0)
}

function countTokens({ train, validation }: ImportState): number {
  return [...train, ...validation].reduce((sum, { samples }) => sum + samples, 0)
}

function shardOf(runs: readonly ArrayLike<number>[], tokens: number, isWide: boolean): Uint8Array {
  const all = isWide ? new Int32Array(tokens) : new Uint16Array(tokens)
  let at = 0
  for (const run of runs) {
    all.set(run, at)
    at += run.length
  }
  const data = new Uint8Array(all.buffer)
  return writeSafetensors(new Map([['tokens', { dtype: isWide ? 'I32' : 'U16', shape: [tokens], data }]]))
}

interface TextRun {
  readonly path: string
  readonly bytes: Buffer
  readonly next: ImportState['place']
}

async function* runsOf(segments: readonly TextSegment[], place: ImportState['place']): AsyncIterable<TextRun> {
  for (let i = place.file; i < segments.length; i++) {
    const segment = segments[i]
    if (segment === undefined) return
    const file = await open(segment.path)
    try {
      let at = i === place.file ? Math.max(place.offset, segment.from) : segment.from
      while (at < segment.to) {
        const bytes = await textAt(file, at, segment.to)
        at += bytes.byteLength
        yield { path: segment.path, bytes, next: { file: i, offset: at, row: 0 } }
      }
    } finally {
      await file.close()
    }
  }
}

/** Up to RUN_BYTES, ending behind a line where one ends, and never within a character. */
async function textAt(file: FileHandle, at: number, end: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(Math.min(RUN_BYTES, end - at))
  const { bytesRead } = await file.read(buffer, 0, buffer.byteLength, at)
  const bytes = buffer.subarray(0, bytesRead)
  if (at + bytesRead >= end || bytesRead === 0) return bytes
  const line = bytes.lastIndexOf(0x0a)
  return line >= 0 ? bytes.subarray(0, line + 1) : bytes.subarray(0, characterBorder(bytes))
}

/** Bytes 10xxxxxx go on with a character: the last place where one begins. */
function characterBorder(bytes: Buffer): number {
  let border = bytes.byteLength - 1
  while (border > 0 && ((bytes[border] ?? 0) & 0xc0) === 0x80) border--
  return border > 0 ? border : bytes.byteLength
}

async function segmentsOf({
  request,
  marks,
}: ImportTools): Promise<Readonly<Record<SplitPart, readonly TextSegment[]>>> {
  const whole = (part: SplitPart): TextSegment[] =>
    marks[part].flatMap(({ files }) => files.map(({ path, bytes }) => ({ path, from: 0, to: bytes })))
  const [train, validation] = [whole('train'), whole('validation')]
  if (validation.length > 0 || request.validationShare === 0) return { train, validation }
  const { tokens } = request.options
  const border = tokens === 'characters' || tokens === 'bytes' ? characterFrom : lineFrom
  const borders = await Promise.all(
    train.map(({ path, to }) => borderOf({ path, from: Math.floor(to * (1 - request.validationShare)), to }, border)),
  )
  return {
    train: train.map((segment, i) => ({ ...segment, to: borders[i] ?? segment.to })),
    validation: train.map((segment, i) => ({ ...segment, from: borders[i] ?? segment.to })),
  }
}

/** Bytes in which a line of a text is expected to end, and a character ends. */
const LINE_BYTES = 64 * 1024
const CHARACTER_BYTES = 4

/** Where the validation of a file begins: at `from` or soon after, so that at least half of it is left. */
async function borderOf({ path, from, to }: TextSegment, border: (bytes: Buffer) => number): Promise<number> {
  const most = Math.min(LINE_BYTES, Math.max(CHARACTER_BYTES, (to - from) >> 1))
  const file = await open(path)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(most), 0, most, from)
    return from + border(buffer.subarray(0, bytesRead))
  } finally {
    await file.close()
  }
}

/** The begin of a line, of a word where lines are long, or of a character: half a word is pieces that no text holds. */
function lineFrom(bytes: Buffer): number {
  const line = bytes.indexOf(0x0a)
  if (line >= 0) return line + 1
  const space = bytes.indexOf(0x20)
  return space >= 0 ? space : characterFrom(bytes)
}

function characterFrom(bytes: Buffer): number {
  return Math.max(
    0,
    bytes.findIndex((byte) => (byte & 0xc0) !== 0x80),
  )
}

async function encodingOf(
  parts: ImportTools & { readonly state: ImportState },
  segments: readonly TextSegment[],
): Promise<TextEncoding> {
  const { tokens, chat } = parts.request.options
  if (chat !== undefined) return piecesIn(JSON.parse(chat.words.tokenizer) as object, chatForm(chat))
  if (tokens === 'bytes') return { target: { kind: 'tokens', size: 256, tokens: 'bytes' }, encode: (bytes) => bytes }
  if (tokens !== 'characters') return pieces(tokens)
  const progress = parts.state.reader as { readonly vocabulary?: string } | undefined
  return characters(progress?.vocabulary ?? (await vocabularyOf(segments)))
}

function characters(vocabulary: string): TextEncoding {
  const all = [...vocabulary]
  const numbers = new Map(all.map((character, number) => [character, number]))
  return {
    target: { kind: 'tokens', size: all.length, vocabulary },
    state: { vocabulary },
    encode(bytes, path) {
      const text = decoded(bytes, path)
      const tokens = new Uint16Array(text.length)
      let length = 0
      for (const character of text) tokens[length++] = numbers.get(character) ?? 0
      return tokens.subarray(0, length)
    },
  }
}

/** One pass before the one that encodes. */
async function vocabularyOf(segments: readonly TextSegment[]): Promise<string> {
  const seen = new Set<string>()
  for await (const { bytes, path } of runsOf(segments, BEGINNING)) {
    for (const character of decoded(bytes, path)) seen.add(character)
    if (seen.size > MAX_VOCABULARY_LENGTH)
      throw datasetUnreadable(
        path,
        `holds more than ${MAX_VOCABULARY_LENGTH} different characters`,
        'Use --tokens bytes.',
      )
  }
  const vocabulary = [...seen].sort((a, b) => (a.codePointAt(0) ?? 0) - (b.codePointAt(0) ?? 0)).join('')
  if (vocabulary.length > 0 && vocabulary.length <= MAX_VOCABULARY_LENGTH) return vocabulary
  throw datasetUnreadable(
    segments.map(({ path }) => path).join(', '),
    vocabulary.length === 0 ? 'holds no text' : `holds more than ${MAX_VOCABULARY_LENGTH} different characters`,
    CURE,
  )
}

/** The pieces of a tokenizer.json. Text is encoded in runs of whole lines: no piece goes across their ends. */
async function pieces(path: string): Promise<TextEncoding> {
  try {
    const bytes = await readFile(path)
    if (bytes.byteLength > MAX_TOKENIZER_BYTES)
      throw new Error(`it has ${bytes.byteLength} bytes, the limit is ${MAX_TOKENIZER_BYTES}`)
    return piecesIn(JSON.parse(bytes.toString('utf8')) as object)
  } catch (cause) {
    throw datasetUnreadable(
      path,
      `is no tokenizer (${describeError(cause)})`,
      'Name a tokenizer.json of Hugging Face, or use --tokens characters or bytes.',
      cause,
    )
  }
}

/** `chat`: of a model's own tokenizer */
function piecesIn(json: object, chat?: ChatForm): TextEncoding {
  const tokenizer = new Tokenizer(json, {})
  const size = 1 + tokenizerIds(json).reduce((greatest, id) => Math.max(greatest, id), 0)
  return {
    target: { kind: 'tokens', size, tokens: 'bpe', ...carried(json), ...(chat === undefined ? {} : { chat }) },
    encode: (text, file) => tokenizer.encode(decoded(text, file), { add_special_tokens: false }).ids,
  }
}

function carried(json: object): Pick<TargetForm, 'tokenizer'> {
  const tokenizer = JSON.stringify(json)
  return Buffer.byteLength(JSON.stringify(tokenizer)) <= MAX_CARRIED_BYTES ? { tokenizer } : {}
}

function tokenizerIds(json: object): number[] {
  const { model, added_tokens: added } = json as {
    readonly model?: { readonly vocab?: Readonly<Record<string, number>> }
    readonly added_tokens?: readonly { readonly id: number }[]
  }
  const ids = [...Object.values(model?.vocab ?? {}), ...(added ?? []).map(({ id }) => id)]
  if (ids.length === 0 || !ids.every((id) => Number.isInteger(id) && id >= 0)) throw new Error('it has no vocabulary')
  return ids
}

function decoded(bytes: Buffer, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (cause) {
    throw datasetUnreadable(basename(path), 'is not UTF-8', CURE, cause)
  }
}

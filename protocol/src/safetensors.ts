// Safetensors: named tensors as bytes, the form in which parameters, optimizer state and golden vectors are stored and
// sent. Layout: u64 LE header length · JSON header · tensor data, without gaps. Independent of models; refuses hostile
// input before anything is allocated. Typed arrays are read in host order: every WebGPU platform is little-endian.

import { GridError } from './errors.ts'

/** dtype name → bytes per element. */
const DTYPE_BYTES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  U16: 2,
  I16: 2,
  F16: 2,
  BF16: 2,
  U32: 4,
  I32: 4,
  F32: 4,
  U64: 8,
  I64: 8,
  F64: 8,
} as const

export type SafetensorsDtype = keyof typeof DTYPE_BYTES

/** What a file's size depends on. */
export interface TensorForm {
  readonly dtype: SafetensorsDtype
  readonly shape: readonly number[]
}

/** One stored tensor; `data` holds its elements row-major, little-endian. */
export interface StoredTensor extends TensorForm {
  readonly data: Uint8Array
}

export interface Safetensors {
  readonly tensors: Map<string, StoredTensor>
  readonly metadata: Record<string, string>
}

/** Bytes of the length field before the header. */
const PREFIX_BYTES = 8
/** Enough for some 100,000 tensor names; a larger header is an attack, not a model. */
export const MAX_SAFETENSORS_HEADER_BYTES = 16 * 1024 * 1024
/** Tensor data begins on this boundary, so that 8-byte elements can be viewed without a copy. */
const DATA_ALIGNMENT = 8
/** No operator of ours has more; bounds the loop over a hostile shape. */
const MAX_DIMENSIONS = 16

/**
 * Reads a whole safetensors file. Tensor data are views into `bytes`, not copies.
 * @throws GridError('message-malformed') naming what is wrong
 * @example const { tensors, metadata } = readSafetensors(await readFile('model.safetensors'))
 */
export function readSafetensors(bytes: Uint8Array): Safetensors {
  const header = readHeader(bytes)
  const data = bytes.subarray(header.end)
  const tensors = new Map<string, StoredTensor>()
  const spans: Span[] = []
  let metadata: Record<string, string> = {}
  for (const [name, value] of Object.entries(header.entries)) {
    if (name === '__metadata__') {
      metadata = parseMetadata(value)
      continue
    }
    const { dtype, shape, begin, end } = parseEntry(name, value, data.byteLength)
    spans.push({ name, begin, end })
    tensors.set(name, { dtype, shape, data: data.subarray(begin, end) })
  }
  requireCovered(spans, data.byteLength)
  return { tensors, metadata }
}

/** A tensor of a file that is not read whole: its bytes in the file. */
export interface SafetensorsForm extends TensorForm {
  readonly begin: number
  readonly end: number
}

/**
 * What a file of `fileBytes` holds, by its beginning: length field and header.
 * @throws GridError('message-malformed') naming what is wrong
 */
export function safetensorsForms(beginning: Uint8Array, fileBytes: number): Map<string, SafetensorsForm> {
  const header = readHeader(beginning)
  const dataBytes = fileBytes - header.end
  const entries = Object.entries(header.entries).filter(([name]) => name !== '__metadata__')
  const forms = entries.map(([name, value]) => [name, parseEntry(name, value, dataBytes)] as const)
  requireCovered(
    forms.map(([name, { begin, end }]) => ({ name, begin, end })),
    dataBytes,
  )
  return new Map(
    forms.map(([name, { begin, end, ...form }]) => [
      name,
      { ...form, begin: header.end + begin, end: header.end + end },
    ]),
  )
}

interface Span {
  readonly name: string
  readonly begin: number
  readonly end: number
}

function readHeader(bytes: Uint8Array): { entries: Record<string, unknown>; end: number } {
  if (bytes.byteLength < PREFIX_BYTES)
    throw malformed(`expected a length field of ${PREFIX_BYTES} bytes, got ${bytes.byteLength}`)
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getBigUint64(0, true)
  if (length > BigInt(MAX_SAFETENSORS_HEADER_BYTES))
    throw malformed(`expected a header of at most ${MAX_SAFETENSORS_HEADER_BYTES} bytes, got ${length}`)
  const end = PREFIX_BYTES + Number(length)
  if (end > bytes.byteLength)
    throw malformed(
      `expected a header of ${length} bytes, got a file with ${bytes.byteLength - PREFIX_BYTES} after its length field`,
    )
  return { entries: parseHeaderJson(bytes.subarray(PREFIX_BYTES, end)), end }
}

function parseHeaderJson(bytes: Uint8Array): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (cause) {
    throw malformed('expected a header of JSON in UTF-8, got other bytes', cause)
  }
  if (!isRecord(value)) throw malformed('expected a JSON object as header, got another value')
  return value
}

function parseMetadata(value: unknown): Record<string, string> {
  if (!isRecord(value)) throw malformed('expected an object as __metadata__, got another value')
  const metadata: [string, string][] = []
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== 'string') throw malformed(`expected a string as __metadata__ ${quote(key)}, got ${typeof text}`)
    metadata.push([key, text])
  }
  return Object.fromEntries(metadata)
}

interface Entry {
  dtype: SafetensorsDtype
  shape: number[]
  begin: number
  end: number
}

function parseEntry(name: string, value: unknown, dataBytes: number): Entry {
  if (!isRecord(value)) throw malformed(`tensor ${quote(name)}: expected an object, got another value`)
  const { dtype, shape, data_offsets: offsets } = value
  if (!isDtype(dtype)) throw malformed(`tensor ${quote(name)}: expected a known dtype, got ${quote(String(dtype))}`)
  const elements = elementCount(name, shape)
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    throw malformed(`tensor ${quote(name)}: expected a pair of data offsets, got none`)
  const [begin, end] = offsets as [number, number]
  if (begin > end || end > dataBytes)
    throw malformed(`tensor ${quote(name)}: expected offsets within ${dataBytes} bytes of data, got ${begin}..${end}`)
  if (elements * DTYPE_BYTES[dtype] !== end - begin)
    throw malformed(
      `tensor ${quote(name)}: expected ${elements * DTYPE_BYTES[dtype]} bytes for its shape, got ${end - begin}`,
    )
  return { dtype, shape: shape as number[], begin, end }
}

function elementCount(name: string, shape: unknown): number {
  if (!Array.isArray(shape) || shape.length > MAX_DIMENSIONS || !shape.every(isSize))
    throw malformed(
      `tensor ${quote(name)}: expected a shape of at most ${MAX_DIMENSIONS} whole sizes, got another value`,
    )
  const count = (shape as number[]).reduce((product, size) => product * size, 1)
  if (!Number.isSafeInteger(count))
    throw malformed(`tensor ${quote(name)}: expected at most 2⁵³ − 1 elements, got more`)
  return count
}

/** The spans must tile the data: an overlap aliases two tensors, a gap hides bytes from a reader of the file. */
function requireCovered(spans: Span[], dataBytes: number): void {
  spans.sort((a, b) => a.begin - b.begin || a.end - b.end)
  let covered = 0
  for (const span of spans) {
    if (span.begin !== covered)
      throw malformed(`tensor ${quote(span.name)}: expected its begin at ${covered}, got ${span.begin}`)
    covered = span.end
  }
  if (covered !== dataBytes) throw malformed(`expected tensors of ${dataBytes} bytes, got ${covered}`)
}

/**
 * Writes tensors in the order of the map, the header padded with spaces so that the data are aligned.
 * @example writeSafetensors(new Map([['fc1.bias', floatTensor([10], bias)]]), { format: 'pt' })
 */
export function writeSafetensors(
  tensors: ReadonlyMap<string, StoredTensor>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(safetensorsBytes(tensors, metadata))
  let offset = 0
  for (const part of safetensorsParts(tensors, metadata)) {
    bytes.set(part, offset)
    offset += part.byteLength
  }
  return bytes
}

/** The same file in parts, one after the other: the header, then views of the tensors' data. */
export function safetensorsParts(
  tensors: ReadonlyMap<string, StoredTensor>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array[] {
  for (const [name, tensor] of tensors)
    if (dataBytesOf(name, tensor) !== tensor.data.byteLength)
      throw new Error(
        `internal: tensor ${quote(name)} of ${tensor.data.byteLength} bytes cannot be stored as ${tensor.dtype} ` +
          `[${tensor.shape.join(', ')}]`,
      )
  return [layOut(tensors, metadata).start, ...byAlignment(tensors).map(([, { data }]) => data)]
}

/** Length field and header of a file whose tensors follow in the order of the map; all have elements of one size. */
export function safetensorsStart(
  tensors: ReadonlyMap<string, TensorForm>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  return layOut(tensors, metadata).start
}

/** Bytes of the file of such tensors, whatever they hold. */
export function safetensorsBytes(
  tensors: ReadonlyMap<string, TensorForm>,
  metadata: Readonly<Record<string, string>> = {},
): number {
  const { start, dataBytes } = layOut(tensors, metadata)
  return start.byteLength + dataBytes
}

/** Wide elements first, otherwise in map order: every tensor then lies on a multiple of its element size. */
function byAlignment<T extends TensorForm>(tensors: ReadonlyMap<string, T>): [string, T][] {
  return [...tensors].sort(([, a], [, b]) => DTYPE_BYTES[b.dtype] - DTYPE_BYTES[a.dtype])
}

/** Length field and header, and the bytes that follow them. */
function layOut(tensors: ReadonlyMap<string, TensorForm>, metadata: Readonly<Record<string, string>>) {
  const entries: [string, unknown][] = []
  if (Object.keys(metadata).length > 0) entries.push(['__metadata__', metadata])
  let dataBytes = 0
  for (const [name, tensor] of byAlignment(tensors)) {
    const begin = dataBytes
    dataBytes += dataBytesOf(name, tensor)
    entries.push([name, { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [begin, dataBytes] }])
  }
  const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(entries)))
  const padded = Math.ceil(text.byteLength / DATA_ALIGNMENT) * DATA_ALIGNMENT
  const start = new Uint8Array(PREFIX_BYTES + padded).fill(0x20)
  new DataView(start.buffer).setBigUint64(0, BigInt(padded), true)
  start.set(text, PREFIX_BYTES)
  return { start, dataBytes }
}

function dataBytesOf(name: string, { dtype, shape }: TensorForm): number {
  if (name === '__metadata__') throw new Error('internal: a tensor is called as the metadata are')
  return elementCount(name, shape) * DTYPE_BYTES[dtype]
}

/** Wraps f32 values for writing; `data` shares their memory. */
export function floatTensor(shape: readonly number[], values: Float32Array): StoredTensor {
  return { dtype: 'F32', shape, data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) }
}

/** The elements of an F32 tensor: a view where alignment allows, else a copy. */
export function float32Values(tensor: StoredTensor): Float32Array {
  if (tensor.dtype !== 'F32') throw malformed(`expected an F32 tensor, found ${tensor.dtype}`)
  const data = aligned(tensor.data, Float32Array.BYTES_PER_ELEMENT)
  return new Float32Array(data.buffer, data.byteOffset, data.byteLength / Float32Array.BYTES_PER_ELEMENT)
}

/** The elements of an I32 tensor: a view where alignment allows, else a copy. */
export function int32Values(tensor: StoredTensor): Int32Array {
  if (tensor.dtype !== 'I32') throw malformed(`expected an I32 tensor, found ${tensor.dtype}`)
  const data = aligned(tensor.data, Int32Array.BYTES_PER_ELEMENT)
  return new Int32Array(data.buffer, data.byteOffset, data.byteLength / Int32Array.BYTES_PER_ELEMENT)
}

// `new Uint8Array(data)` rather than `data.slice()`: a Node Buffer's slice is a view, not a copy.
function aligned(data: Uint8Array, bytesPerElement: number): Uint8Array {
  return data.byteOffset % bytesPerElement === 0 ? data : new Uint8Array(data)
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isDtype(value: unknown): value is SafetensorsDtype {
  return typeof value === 'string' && Object.hasOwn(DTYPE_BYTES, value)
}

function isSize(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** A name from outside, quoted and cut so that it cannot flood or break a log line. */
function quote(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name)
}

function malformed(what: string, cause?: unknown): GridError {
  return new GridError(
    'message-malformed',
    `expected a safetensors file, got another: ${what}`,
    cause === undefined ? undefined : { cause },
  )
}

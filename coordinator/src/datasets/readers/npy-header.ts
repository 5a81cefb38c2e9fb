// What stands before the values of a NumPy array: their type and shape, checked before anything is allocated.
// Source: the NPY format, versions 1.0 to 3.0 (numpy.lib.format).
import type { ByteReader } from '../byte-reader.ts'
import { datasetUnreadable } from '../samples.ts'

export interface NpyHeader {
  /** `<f4`, `|u1`, `<U12`, …: byte order, kind, size */
  readonly type: string
  /** bytes of one value */
  readonly valueBytes: number
  /** rows first */
  readonly shape: readonly number[]
  /** before the values */
  readonly headerBytes: number
}

const MAGIC = '\u0093NUMPY'
/** Magic and version. */
const PREFIX_BYTES = 8
/** Bytes of the description: NumPy itself writes less than 200 for arrays without fields. */
const MAX_DESCRIPTION_BYTES = 64 * 1024
const MAX_DIMENSIONS = 32
/** Bytes of a text value: longer ones name no class. */
const MAX_TEXT_BYTES = 64 * 1024
const NUMBER_TYPES = new Set(['b1', 'i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'u8', 'f2', 'f4', 'f8'])
const CURE = 'Save it again with numpy.save or numpy.savez.'

/** @throws GridError 'dataset-unreadable' */
export async function readNpyHeader(reader: ByteReader, where: string): Promise<NpyHeader> {
  const prefix = Buffer.from(await reader.take(PREFIX_BYTES))
  const version = prefix[6] ?? 0
  if (prefix.toString('latin1', 0, MAGIC.length) !== MAGIC || version < 1 || version > 3)
    throw datasetUnreadable(where, 'is no NumPy array of format 1, 2 or 3', CURE)
  const lengthBytes = version === 1 ? 2 : 4
  const length = Buffer.from(await reader.take(lengthBytes))
  if (length.byteLength < lengthBytes) throw datasetUnreadable(where, 'ends within its header', CURE)
  const bytes = length.readUIntLE(0, lengthBytes)
  if (bytes > MAX_DESCRIPTION_BYTES)
    throw datasetUnreadable(where, `expected a header of at most ${MAX_DESCRIPTION_BYTES} bytes, got ${bytes}`, CURE)
  const description = Buffer.from(await reader.take(bytes))
  if (description.byteLength < bytes) throw datasetUnreadable(where, 'ends within its header', CURE)
  return { ...described(description.toString('utf8'), where), headerBytes: PREFIX_BYTES + lengthBytes + bytes }
}

/** Values of one row. */
export function valuesIn({ shape }: Pick<NpyHeader, 'shape'>): number {
  return shape.slice(1).reduce((product, length) => product * length, 1)
}

function described(text: string, where: string): Omit<NpyHeader, 'headerBytes'> {
  const type = /'descr':\s*'([^']*)'/.exec(text)?.[1]
  const order = /'fortran_order':\s*(True|False)/.exec(text)?.[1]
  const dimensions = /'shape':\s*\(([0-9, ]*)\)/.exec(text)?.[1]
  if (/'descr':\s*\[/.test(text))
    throw datasetUnreadable(where, 'expected an array of one type, got one of fields', 'Save each field by itself.')
  if (type === undefined || order === undefined || dimensions === undefined)
    throw datasetUnreadable(where, `has a header that cannot be read (${text.trim().slice(0, 80)})`, CURE)
  const shape = dimensions.split(',').flatMap((length) => (length.trim() === '' ? [] : [Number(length)]))
  const valueBytes = valueBytesOf(type, where)
  requireShape(shape, valueBytes, where)
  if (order === 'True' && shape.length > 1)
    throw datasetUnreadable(
      where,
      'expected rows one after another, got columns',
      'Save numpy.ascontiguousarray of it.',
    )
  return { type, valueBytes, shape }
}

function valueBytesOf(type: string, where: string): number {
  const [, kind = '', size = '0'] = /^[<>|=]([a-zA-Z])([0-9]{1,6})$/.exec(type) ?? []
  const bytes = Number(size) * (kind === 'U' ? 4 : 1)
  const isText = (kind === 'U' || kind === 'S') && bytes > 0 && bytes <= MAX_TEXT_BYTES
  if (isText || NUMBER_TYPES.has(kind + size)) return bytes
  const cure = /O/.test(type) ? 'Python objects are not read; save numbers or texts.' : 'Save it with another dtype.'
  throw datasetUnreadable(where, `expected numbers, booleans or short texts, got values of type ${type}`, cure)
}

function requireShape(shape: readonly number[], valueBytes: number, where: string): void {
  const bytes = shape.reduce((product, length) => product * length, valueBytes)
  if (shape.length === 0) throw datasetUnreadable(where, 'expected rows of samples, got a single value', CURE)
  if (shape.length > MAX_DIMENSIONS || !Number.isSafeInteger(bytes))
    throw datasetUnreadable(where, `has a shape that no array has: (${shape.join(', ').slice(0, 80)})`, CURE)
}

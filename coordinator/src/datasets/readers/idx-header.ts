// What stands before the values of an IDX array, the form in which MNIST and its relatives are published: 0, 0, the
// type of a value, the number of dimensions, and each dimension as u32, the largest byte first. Values follow in the
// same order.
import type { ByteReader } from '../byte-reader.ts'
import { datasetUnreadable } from '../samples.ts'
import type { NpyHeader } from './npy-header.ts'

const MAGIC_BYTES = 4
const DIMENSION_BYTES = 4
const MAX_DIMENSIONS = 8
/** Types of IDX as NumPy names them, with the bytes of a value. */
const TYPES: Readonly<Record<number, readonly [type: string, bytes: number]>> = {
  0x08: ['|u1', 1],
  0x09: ['|i1', 1],
  0x0b: ['>i2', 2],
  0x0c: ['>i4', 4],
  0x0d: ['>f4', 4],
  0x0e: ['>f8', 8],
}
const CURE = 'Download it again: it may not be whole.'

/** @throws GridError 'dataset-unreadable' */
export async function readIdxHeader(reader: ByteReader, where: string): Promise<NpyHeader> {
  const magic = Buffer.from(await reader.take(MAGIC_BYTES))
  const [type, valueBytes] = TYPES[magic[2] ?? 0] ?? []
  const dimensions = magic[3] ?? 0
  const isIdx = magic.byteLength === MAGIC_BYTES && magic.readUInt16BE(0) === 0
  if (!isIdx || type === undefined || valueBytes === undefined || dimensions < 1 || dimensions > MAX_DIMENSIONS)
    throw datasetUnreadable(
      where,
      `expected an IDX file, which begins with 00 00, a type and 1 to ${MAX_DIMENSIONS} dimensions, ` +
        `got ${magic.toString('hex') || 'nothing'}`,
      CURE,
    )
  const lengths = Buffer.from(await reader.take(dimensions * DIMENSION_BYTES))
  if (lengths.byteLength < dimensions * DIMENSION_BYTES) throw datasetUnreadable(where, 'ends within its header', CURE)
  const shape = Array.from({ length: dimensions }, (_, i) => lengths.readUInt32BE(i * DIMENSION_BYTES))
  const bytes = shape.reduce((product, length) => product * length, valueBytes)
  if (!Number.isSafeInteger(bytes))
    throw datasetUnreadable(where, `declares ${shape.join(' × ')} values, more than any file has`, CURE)
  return { type, valueBytes, shape, headerBytes: MAGIC_BYTES + lengths.byteLength }
}

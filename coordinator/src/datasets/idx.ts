// Reads IDX files, the form in which MNIST and its relatives are published, plain or gzip-compressed.
// Layout: 0 · 0 · element type (8 = U8) · number of dimensions · each dimension u32 BE · elements row-major.
// The header is compared with the file's size before anything is allocated, and no more is unpacked than it declares.
import { type FileHandle, open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { describeError, isGridError } from '@starling-grid/protocol'
import { type ByteReader, byteReader } from './byte-reader.ts'
import { datasetUnreadable } from './samples.ts'

export interface IdxArray {
  readonly shape: readonly number[]
  readonly data: Uint8Array
}

const MAGIC_BYTES = 4
const DIMENSION_BYTES = 4
const UNSIGNED_BYTE = 8
/** EMNIST, the largest of the family, has 547 MB of pixels. */
const MAX_DATA_BYTES = 2 ** 30
/** Deflate cannot pack tighter than 1032 to 1 (zlib's technical notes). */
const MAX_COMPRESSION = 1032
const CURE = 'Download the file again, or name another folder.'

/**
 * An array of U8 with this many dimensions. @throws GridError('dataset-unreadable') naming the file, what was expected
 * and what was found
 */
export async function readIdx(path: string, dimensions: number): Promise<IdxArray> {
  let file: FileHandle | undefined
  try {
    file = await open(path)
    return await readOpened(file, path, dimensions)
  } catch (cause) {
    if (isGridError(cause)) throw cause
    throw unreadable(path, `cannot be read (${describeError(cause)})`, cause)
  } finally {
    await file?.close()
  }
}

async function readOpened(file: FileHandle, path: string, dimensions: number): Promise<IdxArray> {
  const { size } = await file.stat()
  const compressed = await isGzip(file)
  const unpacked = unpack(file, compressed)
  try {
    return await readArray(byteReader(unpacked), { path, dimensions, size, compressed })
  } finally {
    unpacked.destroy()
  }
}

interface IdxFile {
  readonly path: string
  readonly dimensions: number
  /** bytes on disk */
  readonly size: number
  readonly compressed: boolean
}

async function readArray(bytes: ByteReader, { path, dimensions, size, compressed }: IdxFile): Promise<IdxArray> {
  const headerBytes = MAGIC_BYTES + dimensions * DIMENSION_BYTES
  const shape = parseHeader(await bytes.take(headerBytes), path, dimensions)
  const declared = shape.reduce((product, length) => product * length, 1)
  const holdsAtMost = (compressed ? size * MAX_COMPRESSION : size) - headerBytes
  if (declared > Math.min(holdsAtMost, MAX_DATA_BYTES))
    throw unreadable(
      path,
      `declares ${described(shape, declared)}, more than its ${size} bytes can hold or than the limit of ` +
        `${MAX_DATA_BYTES}`,
    )
  const data = await bytes.take(declared)
  if (data.byteLength < declared)
    throw unreadable(path, `declares ${described(shape, declared)} and ends after ${data.byteLength}`)
  if (!(await bytes.atEnd())) throw unreadable(path, `declares ${described(shape, declared)} and holds more`)
  return { shape, data }
}

/** Tells by content, not by name: browsers and mirrors unpack files and keep the ending, or the other way round. */
async function isGzip(file: FileHandle): Promise<boolean> {
  const { buffer } = await file.read(Buffer.alloc(2), 0, 2, 0)
  return buffer[0] === 0x1f && buffer[1] === 0x8b
}

function unpack(file: FileHandle, compressed: boolean): Readable {
  const raw = file.createReadStream({ start: 0, autoClose: false })
  if (!compressed) return raw
  const gunzip = createGunzip()
  raw.on('error', (error) => gunzip.destroy(error))
  gunzip.on('close', () => raw.destroy())
  return raw.pipe(gunzip)
}

function parseHeader(header: Uint8Array, path: string, dimensions: number): number[] {
  const magic = [0, 0, UNSIGNED_BYTE, dimensions]
  const found = [...header.subarray(0, MAGIC_BYTES)]
  if (found.join() !== magic.join())
    throw unreadable(
      path,
      `begins with ${asHex(found)}; an IDX file of bytes in ${dimensions} dimensions begins with ${asHex(magic)}`,
    )
  const lengths = header.subarray(MAGIC_BYTES)
  if (lengths.byteLength < dimensions * DIMENSION_BYTES) throw unreadable(path, 'ends within its header')
  const view = new DataView(lengths.buffer, lengths.byteOffset)
  return Array.from({ length: dimensions }, (_, i) => view.getUint32(i * DIMENSION_BYTES))
}

function described(shape: readonly number[], bytes: number): string {
  return `${shape.join(' × ')} = ${bytes} bytes`
}

function asHex(bytes: readonly number[]): string {
  return bytes.length === 0 ? 'nothing' : bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
}

function unreadable(path: string, problem: string, cause?: unknown): Error {
  return datasetUnreadable(path, problem, CURE, cause)
}

// Where arrays lie, and reading their rows in order: NumPy's .npy and IDX files as they are, what is packed as it
// comes.
import { createReadStream } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { createGunzip } from 'node:zlib'
import { describeError } from '@starling-grid/protocol'
import { type ByteReader, byteReader } from '../byte-reader.ts'
import { datasetUnreadable } from '../samples.ts'
import { readIdxHeader } from './idx-header.ts'
import { type NpyHeader, readNpyHeader, valuesIn } from './npy-header.ts'
import { npyValues, type NpyValues } from './npy-values.ts'
import { NpzFile } from './npz.ts'

/** Where an array lies. */
export interface ArrayPlace {
  /** of its column */
  readonly name: string
  /** for messages */
  readonly where: string
  /** with the header, unpacked; undefined: its end tells */
  readonly bytes: number | undefined
  chunks(): AsyncIterable<Uint8Array>
  readHeader(reader: ByteReader, where: string): Promise<NpyHeader>
}

/** Arrays of the same rows. */
export interface ArrayGroup {
  readonly path: string
  /** of its files */
  readonly bytes: number
  readonly arrays: readonly ArrayPlace[]
  close(): void
}

/** Opens a group when it is to be read. */
export type OpenArrayGroup = () => Promise<ArrayGroup>

const CURE = 'Save it again, or copy it again: it may not be whole.'
/** Bytes of one row: larger samples do not fit a shard. */
const MAX_ROW_BYTES = 64 * 2 ** 20
const SKIP_BYTES = 2 ** 20

export type ArrayFormat = 'npy' | 'npz' | 'idx'

/** An .npz file is a group; all .npy or IDX files are one, whose columns are named as the files are. */
export function groupsOf(
  paths: readonly string[],
  format: ArrayFormat,
  names: readonly string[] = paths,
): OpenArrayGroup[] {
  if (format === 'npz') return paths.map((path) => () => zipGroup(path))
  return paths.length === 0 ? [] : [() => fileGroup(paths, format, names)]
}

/** What is no part of an array's name: `-idx3-ubyte`, and that it is packed. */
const ENDING_OF_ARRAY = /(\.npy|[-.]idx\d-ubyte|\.idx)?(\.gz)?$/i

async function zipGroup(path: string): Promise<ArrayGroup> {
  const file = await NpzFile.open(path)
  const arrays = file.names.map((name) => ({
    name,
    where: `${path}, array ${name}`,
    bytes: file.bytesOf(name) ?? 0,
    chunks: () => file.chunks(name),
    readHeader: readNpyHeader,
  }))
  return { path, bytes: (await stat(path)).size, arrays, close: () => file.close() }
}

async function fileGroup(
  paths: readonly string[],
  format: Exclude<ArrayFormat, 'npz'>,
  names: readonly string[],
): Promise<ArrayGroup> {
  const sizes = await Promise.all(paths.map(async (path) => (await stat(path)).size))
  const arrays = await Promise.all(
    paths.map(async (path, i) => {
      const isPacked = await isGzip(path)
      return {
        name: basename(names[i] ?? path).replace(ENDING_OF_ARRAY, ''),
        where: path,
        bytes: isPacked ? undefined : sizes[i],
        chunks: () => fileChunks(path, isPacked),
        readHeader: format === 'idx' ? readIdxHeader : readNpyHeader,
      }
    }),
  )
  const bytes = sizes.reduce((sum, size) => sum + size, 0)
  return { path: paths.join(', '), bytes, arrays, close: () => undefined }
}

/** By content, not by name: browsers unpack files and keep the ending, or the other way round. */
async function isGzip(path: string): Promise<boolean> {
  const file = await open(path)
  try {
    const { buffer } = await file.read(Buffer.alloc(2), 0, 2, 0)
    return buffer[0] === 0x1f && buffer[1] === 0x8b
  } finally {
    await file.close()
  }
}

async function* fileChunks(path: string, isPacked: boolean): AsyncIterable<Uint8Array> {
  const raw = createReadStream(path)
  const unpacked = isPacked ? raw.pipe(createGunzip()) : raw
  raw.on('error', (error) => unpacked.destroy(error))
  try {
    yield* unpacked as AsyncIterable<Buffer>
  } catch (cause) {
    throw datasetUnreadable(path, `cannot be read (${describeError(cause)})`, 'Name a file that can be read.', cause)
  }
}

/** An array that is being read from its first row to its last. */
export class OpenArray {
  readonly name: string
  readonly header: NpyHeader
  readonly rowBytes: number
  readonly #where: string
  readonly #reader: ByteReader
  readonly #chunks: AsyncIterator<Uint8Array>

  /** @throws GridError 'dataset-unreadable' when its bytes are not those of its shape */
  static async open(place: ArrayPlace): Promise<OpenArray> {
    const chunks = place.chunks()[Symbol.asyncIterator]()
    const reader = byteReader({ [Symbol.asyncIterator]: () => chunks })
    try {
      const header = await place.readHeader(reader, place.where)
      requireBytes(header, place)
      return new OpenArray(place, header, { reader, chunks })
    } catch (error) {
      await chunks.return?.()
      throw error
    }
  }

  private constructor(
    { name, where }: ArrayPlace,
    header: NpyHeader,
    from: { readonly reader: ByteReader; readonly chunks: AsyncIterator<Uint8Array> },
  ) {
    this.name = name
    this.header = header
    this.rowBytes = valuesIn(header) * header.valueBytes
    this.#where = where
    this.#reader = from.reader
    this.#chunks = from.chunks
  }

  async skip(rows: number): Promise<void> {
    for (let left = rows * this.rowBytes; left > 0; left -= SKIP_BYTES)
      await this.#reader.take(Math.min(left, SKIP_BYTES))
  }

  /** The next rows, of which `at` is the first. @throws GridError 'dataset-unreadable' when the file ends before */
  async take(rows: number, at: number): Promise<NpyValues> {
    const bytes = await this.#reader.take(rows * this.rowBytes)
    if (bytes.byteLength < rows * this.rowBytes)
      throw datasetUnreadable(`${this.#where}, row ${1 + at}`, 'ends before its last row', CURE)
    return npyValues(this.header.type, bytes, rows * valuesIn(this.header))
  }

  /** After the last row: what comes from a ZIP is compared with its checksum here. */
  async end(): Promise<void> {
    if (!(await this.#reader.atEnd())) throw datasetUnreadable(this.#where, 'goes on behind its last row', CURE)
  }

  async close(): Promise<void> {
    await this.#chunks.return?.()
  }
}

function requireBytes(header: NpyHeader, { where, bytes }: ArrayPlace): void {
  const { shape, valueBytes, headerBytes } = header
  const wanted = headerBytes + (shape[0] ?? 0) * valuesIn(header) * valueBytes
  if (bytes !== undefined && wanted !== bytes)
    throw datasetUnreadable(where, `expected ${wanted} bytes for its shape (${shape.join(', ')}), got ${bytes}`, CURE)
  const row = valuesIn(header) * valueBytes
  if (row === 0 || row > MAX_ROW_BYTES)
    throw datasetUnreadable(where, `expected rows of 1 to ${MAX_ROW_BYTES} bytes, got ${row}`, CURE)
}

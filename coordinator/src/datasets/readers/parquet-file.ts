// A Parquet file as hyparquet reads it, with bounds that the library lacks. Sizes in the footer and in page headers are
// compared with the file before anything is unpacked.
import { type FileHandle, open } from 'node:fs/promises'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import { describeError } from '@starling-grid/protocol'
import { decompress as unzstd } from 'fzstd'
import {
  type ColumnMetaData,
  type Compressors,
  type FileMetaData,
  parquetMetadataAsync,
  parquetScan,
  parquetSchema,
  type RowGroup,
  snappyUncompress,
} from 'hyparquet'
import { parquetHeader } from 'hyparquet/src/column.js'
import { datasetUnreadable } from '../samples.ts'

const MAX_FOOTER_BYTES = 64 * 2 ** 20
/** A column of a row group, packed: it is held while rows of the group are read. */
const MAX_CHUNK_BYTES = 64 * 2 ** 20
const MAX_PAGE_BYTES = 64 * 2 ** 20
/** Bytes behind the footer: its length and the mark. */
const TAIL_BYTES = 8
const CURE =
  'Write it again with smaller row groups (row_group_size of pyarrow), or copy it again: it may not be whole.'

/** Values of a column, one for each row: numbers, big integers, texts, lists. */
export type ColumnValues = ArrayLike<unknown>

export class ParquetFile {
  readonly path: string
  readonly columns: readonly string[]
  readonly groups: readonly RowGroup[]
  readonly #file: FileHandle
  readonly bytes: number
  readonly #metadata: FileMetaData

  /** @throws GridError 'dataset-unreadable' */
  static async open(path: string): Promise<ParquetFile> {
    const file = await open(path).catch((cause: unknown) => {
      throw datasetUnreadable(path, 'cannot be opened', 'Name a file that can be read.', cause)
    })
    try {
      const { size } = await file.stat()
      await requireFooter(file, size)
      const metadata = await parquetMetadataAsync(bufferOf(file, size))
      requireMetadata(metadata, size)
      return new ParquetFile(path, file, size, metadata)
    } catch (cause) {
      await file.close()
      throw datasetUnreadable(path, `is no Parquet file that can be read (${describeError(cause)})`, CURE, cause)
    }
  }

  private constructor(path: string, file: FileHandle, bytes: number, metadata: FileMetaData) {
    this.path = path
    this.#file = file
    this.bytes = bytes
    this.#metadata = metadata
    this.groups = metadata.row_groups
    this.columns = parquetSchema(metadata).children.map(({ element }) => element.name)
  }

  get rows(): number {
    return this.groups.reduce((sum, { num_rows: rows }) => sum + Number(rows), 0)
  }

  /** Values of these columns in one row group, of all kinds of lists each number for itself. */
  valuesIn(group: RowGroup, columns: readonly string[]): number {
    return chunksOf(group, columns).reduce((sum, { num_values: values }) => sum + Number(values), 0)
  }

  isNested(group: RowGroup, columns: readonly string[]): boolean {
    return chunksOf(group, columns).some(({ path_in_schema: path }) => path.length > 1)
  }

  /** @throws GridError 'dataset-unreadable' where a page says sizes that it cannot have */
  async requirePages(group: RowGroup, columns: readonly string[]): Promise<void> {
    for (const chunk of chunksOf(group, columns)) {
      try {
        requireHonestPages(await bufferOf(this.#file, this.bytes).slice(...rangeOf(chunk)), chunk)
      } catch (cause) {
        throw this.#damaged(chunk.path_in_schema.join('.'), cause)
      }
    }
  }

  /** Rows of one group. @throws GridError 'dataset-unreadable' naming the column */
  async read(columns: readonly string[], rowStart: number, rowEnd: number): Promise<ReadonlyMap<string, ColumnValues>> {
    const file = bufferOf(this.#file, this.bytes)
    const read = new Map<string, ColumnValues>()
    for (const column of columns) {
      try {
        const scan = await parquetScan({ file, metadata: this.#metadata, columns: [column], compressors: COMPRESSORS })
        const values = await scan.readColumn({ column, rowStart, rowEnd })
        if (values.length !== rowEnd - rowStart)
          throw new Error(`it has ${values.length} values for ${rowEnd - rowStart} rows`)
        read.set(column, values)
      } catch (cause) {
        throw this.#damaged(`${column}, rows ${rowStart + 1} to ${rowEnd}`, cause)
      }
    }
    return read
  }

  #damaged(where: string, cause: unknown): Error {
    return datasetUnreadable(`${this.path}, column ${where}`, `cannot be read (${describeError(cause)})`, CURE, cause)
  }

  close(): Promise<void> {
    return this.#file.close()
  }
}

/** Unpacked pages have the size that their header says, which is bounded. */
const COMPRESSORS: Compressors = {
  SNAPPY: (input, size) => {
    const output = new Uint8Array(bounded(size))
    snappyUncompress(input, output)
    return output
  },
  GZIP: (input, size) => gunzipSync(input, { maxOutputLength: bounded(size) }),
  BROTLI: (input, size) => brotliDecompressSync(input, { maxOutputLength: bounded(size) }),
  ZSTD: (input, size) => unzstd(input, new Uint8Array(bounded(size))),
}

function bounded(size: number): number {
  if (size > 0 && size <= MAX_PAGE_BYTES) return size
  throw new Error(`a page has ${size} bytes, the limit is ${MAX_PAGE_BYTES}`)
}

interface FileBuffer {
  readonly byteLength: number
  slice(start: number, end?: number): Promise<ArrayBuffer>
}

function bufferOf(file: FileHandle, byteLength: number): FileBuffer {
  return {
    byteLength,
    slice: async (start, end = byteLength) => {
      const length = end - start
      if (start < 0 || end > byteLength || length < 0 || length > MAX_FOOTER_BYTES + MAX_CHUNK_BYTES)
        throw new Error(`bytes ${start} to ${end} of ${byteLength} are not there, or too many`)
      const bytes = new Uint8Array(length)
      const { bytesRead } = await file.read(bytes, 0, length, start)
      if (bytesRead !== length) throw new Error(`it ends at byte ${start + bytesRead}`)
      return bytes.buffer
    },
  }
}

async function requireFooter(file: FileHandle, size: number): Promise<void> {
  if (size < TAIL_BYTES) throw new Error('it is too short')
  const tail = Buffer.alloc(TAIL_BYTES)
  await file.read(tail, 0, TAIL_BYTES, size - TAIL_BYTES)
  if (tail.toString('latin1', 4) !== 'PAR1') throw new Error('its end is no end of a Parquet file')
  if (tail.readUInt32LE(0) > Math.min(size, MAX_FOOTER_BYTES))
    throw new Error(`its footer has ${tail.readUInt32LE(0)} bytes, the limit is ${Math.min(size, MAX_FOOTER_BYTES)}`)
}

function requireMetadata({ row_groups: groups, num_rows: all }: FileMetaData, size: number): void {
  let rows = 0
  for (const group of groups) {
    if (group.num_rows < 0) throw new Error(`a row group has ${group.num_rows} rows`)
    rows += Number(group.num_rows)
    for (const { meta_data: chunk, file_path: other } of group.columns) {
      if (chunk === undefined || other) throw new Error('its columns lie in other files')
      const [start, end] = rangeOf(chunk)
      if (start < 0 || end > size || end < start) throw new Error(`a column lies at bytes ${start} to ${end}`)
      if (end - start > MAX_CHUNK_BYTES)
        throw new Error(`a column of a row group has ${end - start} bytes, the limit is ${MAX_CHUNK_BYTES}`)
      if (chunk.path_in_schema.length === 1 && chunk.num_values !== group.num_rows)
        throw new Error(`a column has ${chunk.num_values} values in ${group.num_rows} rows`)
    }
  }
  if (!Number.isSafeInteger(rows) || BigInt(rows) !== all) throw new Error(`${rows} rows in groups, ${all} in all`)
}

function chunksOf(group: RowGroup, columns: readonly string[]): ColumnMetaData[] {
  return group.columns.flatMap(({ meta_data: chunk }) =>
    chunk !== undefined && columns.includes(chunk.path_in_schema[0] ?? '') ? [chunk] : [],
  )
}

function rangeOf(chunk: ColumnMetaData): [number, number] {
  const { dictionary_page_offset: dictionary, data_page_offset: data, total_compressed_size: bytes } = chunk
  const start = Number(dictionary || data)
  return [start, start + Number(bytes)]
}

/** A page may say a billion values in ten bytes: they are counted before one is unpacked. */
function requireHonestPages(bytes: ArrayBuffer, chunk: ColumnMetaData): void {
  const reader = { view: new DataView(bytes), offset: 0 }
  let left = Number(chunk.num_values)
  while (left > 0) {
    if (reader.offset >= bytes.byteLength) throw new Error(`its pages lack ${left} values`)
    const header = parquetHeader(reader)
    bounded(Math.max(1, header.uncompressed_page_size))
    const data = header.data_page_header ?? header.data_page_header_v2
    const values = Number(data?.num_values ?? header.dictionary_page_header?.num_values ?? 0)
    if (!(values >= 0 && values <= Number(chunk.num_values)))
      throw new Error(`a page has ${values} values, the column ${chunk.num_values}`)
    if (data !== undefined) left -= values
    if (!(header.compressed_page_size >= 0)) throw new Error(`a page has ${header.compressed_page_size} bytes`)
    reader.offset += header.compressed_page_size
  }
}

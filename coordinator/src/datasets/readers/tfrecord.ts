// TFRecord: records with checksums, each a tf.train.Example whose features are the columns.
// Source: TensorFlow's record_writer.h and example.proto.
import { type FileHandle, open } from 'node:fs/promises'
import { describeError } from '@starling-grid/protocol'
import { datasetUnreadable } from '../samples.ts'
import { maskedCrc32c } from './crc32c.ts'
import { BEGINNING, type ReadPlace, RUN_BYTES, type SplitPart, type PartFiles } from './reader.ts'
import { cellsOf, type TableCell, type TableRow, type TableRun, type TableSource } from './table.ts'
import { exampleOf } from './tf-example.ts'

/** Length and its checksum before a record, the record's checksum behind it. */
const HEAD_BYTES = 12
const SUM_BYTES = 4
/** Bytes of one record: a larger one is no sample. */
const MAX_RECORD_BYTES = 64 * 2 ** 20
const CURE = 'Write it again, or copy it again: it may not be whole. Packed files are to be unpacked first.'

export class TfRecordSource implements TableSource {
  readonly format = 'TFRecord'
  readonly columns: readonly string[]
  readonly bytes: TableSource['bytes']
  readonly #files: PartFiles

  /** @throws GridError 'dataset-unreadable' */
  static async open(files: PartFiles, bytes: TableSource['bytes']): Promise<TfRecordSource> {
    const path = files.train[0] ?? ''
    for await (const [record] of recordsOf(path, BEGINNING)) {
      if (record === undefined) continue
      const features = decoded(record.data, `${path}, record 1`)
      return new TfRecordSource(files, bytes, [...features.keys()].sort())
    }
    throw datasetUnreadable(path, 'holds no record', 'Name a file with samples.')
  }

  private constructor(files: PartFiles, bytes: TableSource['bytes'], columns: readonly string[]) {
    this.#files = files
    this.bytes = bytes
    this.columns = columns
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun> {
    for (let i = from.file; i < this.#files[part].length; i++) {
      const path = this.#files[part][i] ?? ''
      let place = i === from.file ? from : { ...BEGINNING, file: i }
      for await (const records of recordsOf(path, place)) {
        const first = place.row + 1
        const where = (row: number): string => `${path}, record ${first + row}`
        const rows = records.map(({ data }, row) => this.#rowOf(data, where(row)))
        const bytes = records.reduce((sum, { data }) => sum + data.byteLength + HEAD_BYTES + SUM_BYTES, 0)
        place = { file: i, offset: place.offset + bytes, row: place.row + records.length }
        yield { cells: cellsOf(rows), next: place, bytes, where }
      }
    }
  }

  #rowOf(data: Uint8Array, where: string): TableRow {
    const features = decoded(data, where)
    return this.columns.map((name) => features.get(name))
  }
}

interface TfRecord {
  readonly data: Uint8Array
}

/** Runs of whole records from a place on. @throws GridError 'dataset-unreadable' naming the record */
async function* recordsOf(path: string, from: ReadPlace): AsyncIterable<readonly TfRecord[]> {
  const file = await open(path).catch((cause: unknown) => {
    throw datasetUnreadable(path, 'cannot be opened', 'Name a file that can be read.', cause)
  })
  try {
    const { size } = await file.stat()
    let { offset, row } = from
    let wanted = RUN_BYTES
    while (offset < size) {
      const bytes = await bytesFrom(file, offset, Math.min(wanted, size - offset))
      const isLast = offset + bytes.byteLength >= size
      const { records, end, needed } = cut(bytes, (i) => `${path}, record ${row + i + 1}`)
      if (records.length === 0 && isLast) throw ended(path, row)
      wanted = Math.max(RUN_BYTES, needed)
      if (records.length === 0) continue
      yield records
      offset += end
      row += records.length
      if (isLast && end < bytes.byteLength && offset + HEAD_BYTES > size) throw ended(path, row)
    }
  } finally {
    await file.close()
  }
}

function ended(path: string, records: number): Error {
  return datasetUnreadable(`${path}, record ${records + 1}`, 'ends before its last byte', CURE)
}

async function bytesFrom(file: FileHandle, offset: number, count: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(count)
  const { bytesRead } = await file.read(buffer, 0, count, offset)
  return buffer.subarray(0, bytesRead)
}

interface CutRecords {
  readonly records: readonly TfRecord[]
  /** bytes of them */
  readonly end: number
  /** bytes of the next record */
  readonly needed: number
}

/** The whole records that bytes begin with. */
function cut(bytes: Buffer, where: (record: number) => string): CutRecords {
  const records: TfRecord[] = []
  let at = 0
  while (at + HEAD_BYTES <= bytes.byteLength) {
    const length = lengthAt(bytes, at, () => where(records.length))
    const whole = HEAD_BYTES + length + SUM_BYTES
    if (at + whole > bytes.byteLength) return { records, end: at, needed: whole }
    const data = bytes.subarray(at + HEAD_BYTES, at + HEAD_BYTES + length)
    if (maskedCrc32c(data) !== bytes.readUInt32LE(at + HEAD_BYTES + length))
      throw datasetUnreadable(where(records.length), 'has another checksum', CURE)
    records.push({ data })
    at += whole
  }
  return { records, end: at, needed: 0 }
}

function lengthAt(bytes: Buffer, at: number, where: () => string): number {
  if (maskedCrc32c(bytes.subarray(at, at + 8)) !== bytes.readUInt32LE(at + 8))
    throw datasetUnreadable(where(), 'expected a TFRecord, got a length with another checksum', CURE)
  const length = Number(bytes.readBigUInt64LE(at))
  if (length <= MAX_RECORD_BYTES) return length
  throw datasetUnreadable(where(), `expected a record of at most ${MAX_RECORD_BYTES} bytes, got ${length}`, CURE)
}

function decoded(data: Uint8Array, where: string): ReadonlyMap<string, TableCell> {
  try {
    return exampleOf(data)
  } catch (cause) {
    throw datasetUnreadable(where, `is no tf.train.Example (${describeError(cause)})`, CURE, cause)
  }
}

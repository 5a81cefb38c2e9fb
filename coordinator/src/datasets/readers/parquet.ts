// Parquet: rows in spans of a row group, of columns that are wanted. A span is held, a group only where it has lists.
import { GridError } from '@starling-grid/protocol'
import type { RowGroup } from 'hyparquet'
import { datasetUnreadable } from '../samples.ts'
import { type ColumnValues, ParquetFile } from './parquet-file.ts'
import { BEGINNING, type ReadPlace, RUN_BYTES, type SplitPart, type PartFiles } from './reader.ts'
import { cellsOf, type TableRow, type TableRun, type TableSource } from './table.ts'

/** Rows that are unpacked at once of columns without lists: some pages. */
const SPAN_ROWS = 65_536
/** Values that are held at once, 8 to 40 bytes each. */
const MAX_VALUES = 4_000_000
const F32_BYTES = 4

/** Rows of a group that are unpacked together. */
interface RowSpan {
  readonly group: RowGroup
  /** of the file's rows */
  readonly begin: number
  readonly end: number
  /** the group was not looked at before */
  readonly isFirst: boolean
}

export class ParquetSource implements TableSource {
  readonly format = 'Parquet'
  readonly columns: readonly string[]
  readonly bytes: TableSource['bytes']
  readonly #files: PartFiles
  readonly #wanted: readonly string[]

  /** @throws GridError 'dataset-unreadable' */
  static async open(files: PartFiles, bytes: TableSource['bytes'], wanted?: readonly string[]): Promise<ParquetSource> {
    const file = await ParquetFile.open(files.train[0] ?? '')
    await file.close()
    return new ParquetSource(files, bytes, file.columns, wanted)
  }

  private constructor(
    files: PartFiles,
    bytes: TableSource['bytes'],
    columns: readonly string[],
    wanted: readonly string[] | undefined,
  ) {
    this.#files = files
    this.bytes = bytes
    this.columns = columns
    this.#wanted = columns.filter((name) => wanted === undefined || wanted.includes(name))
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun> {
    for (let i = from.file; i < this.#files[part].length; i++) {
      const file = await ParquetFile.open(this.#files[part][i] ?? '')
      try {
        this.#requireColumns(file)
        yield* this.#readFile(file, i === from.file ? from : { ...BEGINNING, file: i })
      } finally {
        await file.close()
      }
    }
  }

  async *#readFile(file: ParquetFile, from: ReadPlace): AsyncIterable<TableRun> {
    const all = (row: number): number => Math.floor((file.bytes * row) / Math.max(1, file.rows))
    for (const span of this.#spans(file)) {
      if (span.end <= from.offset) continue
      if (span.isFirst || span.begin < from.offset) await file.requirePages(span.group, this.#wanted)
      const values = await file.read(this.#wanted, span.begin, span.end)
      const perRun = this.#rowsOfRun(file, span.group)
      for (let at = span.begin; at < span.end; at += perRun) {
        if (at < from.offset) continue
        const end = Math.min(span.end, at + perRun)
        yield {
          cells: cellsOf(this.#rowsOf(values, at - span.begin, end - span.begin)),
          next: { file: from.file, offset: end, row: end },
          bytes: all(end) - all(at),
          where: (row) => `${file.path}, row ${1 + at + row}`,
        }
      }
    }
  }

  *#spans(file: ParquetFile): Iterable<RowSpan> {
    let begin = 0
    for (const group of file.groups) {
      const rows = Number(group.num_rows)
      const size = this.#spanRows(file, group)
      for (let at = 0; at < rows; at += size)
        yield { group, begin: begin + at, end: begin + Math.min(rows, at + size), isFirst: at === 0 }
      begin += rows
    }
  }

  /** @throws GridError 'dataset-unreadable' for more than memory should hold */
  #spanRows(file: ParquetFile, group: RowGroup): number {
    const rows = Math.max(1, Number(group.num_rows))
    const values = file.valuesIn(group, this.#wanted)
    const isNested = file.isNested(group, this.#wanted)
    if (isNested && values > MAX_VALUES)
      throw datasetUnreadable(
        file.path,
        `expected row groups of at most ${MAX_VALUES} values where cells are lists, got one of ${values}`,
        'Write it again with smaller row groups (row_group_size of pyarrow), or choose columns with --inputs.',
      )
    return isNested ? rows : Math.max(1, Math.min(SPAN_ROWS, Math.floor((MAX_VALUES * rows) / Math.max(1, values))))
  }

  #rowsOfRun(file: ParquetFile, group: RowGroup): number {
    const perRow = file.valuesIn(group, this.#wanted) / Math.max(1, Number(group.num_rows))
    return Math.max(1, Math.floor(RUN_BYTES / (F32_BYTES * Math.max(1, perRow))))
  }

  #rowsOf(values: ReadonlyMap<string, ColumnValues>, begin: number, end: number): TableRow[] {
    const columns = this.columns.map((name) => values.get(name))
    return Array.from({ length: end - begin }, (_, row) => columns.map((column) => column?.[begin + row]))
  }

  #requireColumns(file: ParquetFile): void {
    const lacking = this.#wanted.find((name) => !file.columns.includes(name))
    const found = file.columns.slice(0, 30).join(', ')
    if (lacking !== undefined)
      throw new GridError(
        'dataset-unreadable',
        `expected the column ${lacking} of the first file in ${file.path}, got ${found}; ` +
          'give all files the same columns',
      )
  }
}

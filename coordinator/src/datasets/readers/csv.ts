// CSV and TSV in runs of whole rows: read by papaparse where a row is more than numbers and names between separators.
import { GridError } from '@starling-grid/protocol'
import Papa from 'papaparse'
import { datasetUnreadable } from '../samples.ts'
import { type LineBytes, LineFile, utf8 } from './file-lines.ts'
import { PlainRows } from './plain-rows.ts'
import type { SplitPart, ReadPlace, PartFiles } from './reader.ts'
import { cellsOf, type TableRow, type TableRun, type TableSource } from './table.ts'

export interface CsvOptions {
  /** the first row names the columns; otherwise they are called 1, 2, 3 … */
  readonly header: boolean
  /** absent: found out */
  readonly delimiter?: string
}

/** Rows that are looked at to find the delimiter. */
const PREVIEW_ROWS = 10
const CURE = 'Correct the row, or name the separator with --delimiter.'

/** Its parser takes one text at a time and says where the last whole row ends. */
interface RowParser {
  parse(text: string, base: number, ignoreLastRow: boolean): ParsedRows
}
interface ParsedRows {
  readonly data: string[][]
  readonly errors: readonly Papa.ParseError[]
  readonly meta: { readonly cursor: number }
}
// Its types leave this class out, which takes a file piece by piece.
const Parser = Papa.Parser as unknown as new (config: object) => RowParser

interface CsvRun extends TableRun {
  readonly isLast: boolean
}

export class CsvSource implements TableSource {
  readonly format: string
  readonly columns: readonly string[]
  readonly bytes: Readonly<Record<SplitPart, number>>
  readonly #files: PartFiles
  readonly #options: CsvOptions & { readonly delimiter: string }
  readonly #plainRows: PlainRows

  static async open(files: PartFiles, bytes: TableSource['bytes'], options: CsvOptions): Promise<CsvSource> {
    const [first = ''] = files.train
    const file = await LineFile.open(first)
    try {
      const text = utf8((await file.from(0)).bytes, first)
      const preview = Papa.parse<string[]>(text, {
        preview: PREVIEW_ROWS,
        delimiter: options.delimiter ?? (/\.tsv$/i.test(first) ? '\t' : ''),
      })
      const [names = []] = preview.data
      const { delimiter } = preview.meta
      const columns = options.header ? names.map(cleanName) : names.map((_, i) => String(i + 1))
      const twice = columns.find((name, i) => columns.indexOf(name) !== i)
      if (twice !== undefined)
        throw new GridError(
          'dataset-unreadable',
          `expected columns of different names in ${first}, got "${twice}" twice; rename one`,
        )
      return new CsvSource(files, bytes, columns, { ...options, delimiter })
    } finally {
      await file.close()
    }
  }

  private constructor(
    files: PartFiles,
    bytes: TableSource['bytes'],
    columns: readonly string[],
    options: CsvOptions & { readonly delimiter: string },
  ) {
    this.#files = files
    this.bytes = bytes
    this.columns = columns
    this.#options = options
    this.#plainRows = new PlainRows({ columns: columns.length, delimiter: options.delimiter })
    this.format = options.delimiter === '\t' ? 'TSV' : 'CSV'
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun> {
    for (let file = from.file; file < this.#files[part].length; file++)
      yield* this.#readFile(part, file === from.file ? from : { file, offset: 0, row: 0 })
  }

  async *#readFile(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun> {
    const path = this.#files[part][from.file] ?? ''
    const file = await LineFile.open(path)
    try {
      let place = from
      for (;;) {
        const run = await this.#run(file, place)
        if (run.cells.rows > 0) yield run
        if (run.isLast) return
        place = run.next
      }
    } finally {
      await file.close()
    }
  }

  async #run(file: LineFile, place: ReadPlace, runs = 1): Promise<CsvRun> {
    const { bytes, isLast } = await file.from(place.offset, runs)
    return this.#plain(file, place, { bytes, isLast }) ?? this.#parsed(file, place, { bytes, isLast }, runs)
  }

  /** Undefined where it takes a parser. */
  #plain({ path }: LineFile, { file, offset, row }: ReadPlace, { bytes, isLast }: LineBytes): CsvRun | undefined {
    const skipped = this.#skipped(offset)
    const cells = this.#plainRows.cellsOf(bytes, skipped)
    if (cells === undefined) return undefined
    const first = row + skipped
    return {
      cells,
      isLast,
      bytes: bytes.byteLength,
      next: { file, offset: offset + bytes.byteLength, row: first + cells.rows },
      where: (at) => `${path}, line ${1 + first + at}`,
    }
  }

  async #parsed(file: LineFile, place: ReadPlace, { bytes, isLast }: LineBytes, runs: number): Promise<CsvRun> {
    const text = utf8(bytes, file.path)
    const parser = new Parser({ delimiter: this.#options.delimiter, newline: newlineOf(text) })
    const { data, errors, meta } = parser.parse(text, 0, !isLast)
    const read =
      meta.cursor === text.length || isLast ? bytes.byteLength : Buffer.byteLength(text.slice(0, meta.cursor))
    if (read === 0 && !isLast) return this.#run(file, place, runs * 2) // a quoted cell goes on beyond these lines
    const [quotes] = errors
    if (quotes?.type === 'Quotes')
      throw datasetUnreadable(
        whereOf(file.path, data, { place, row: quotes.row ?? 0 }),
        `expected quotation marks around whole cells, got: ${quotes.message}`,
        CURE,
      )
    const skipped = this.#skipped(place.offset)
    const rows = data.slice(skipped)
    while (rows.length > 0 && isBlank(rows.at(-1))) rows.pop()
    const lines = text.includes('"') ? countLines(data) : data.length
    this.#requireWhole(rows, (row) => whereOf(file.path, data, { place, row: row + skipped }))
    return {
      cells: cellsOf(rows),
      isLast,
      bytes: read,
      next: { file: place.file, offset: place.offset + read, row: place.row + lines },
      where: (row) => whereOf(file.path, data, { place, row: row + skipped }),
    }
  }

  /** Rows of a run at this byte that are no samples. */
  #skipped(offset: number): number {
    return this.#options.header && offset === 0 ? 1 : 0
  }

  #requireWhole(rows: readonly TableRow[], where: (row: number) => string): void {
    const wide = this.columns.length
    const bad = rows.findIndex((row) => row.length !== wide)
    if (bad < 0) return
    throw datasetUnreadable(where(bad), `expected ${wide} cells, got ${rows[bad]?.length}`, CURE)
  }
}

/** `place.row` counts lines, since cells in quotation marks may have several. */
function whereOf(
  path: string,
  data: readonly (readonly string[])[],
  { place, row }: { readonly place: ReadPlace; readonly row: number },
): string {
  return `${path}, line ${1 + place.row + countLines(data.slice(0, row))}`
}

function countLines(rows: readonly (readonly string[])[]): number {
  let lines = rows.length
  for (const row of rows)
    for (const cell of row) for (let at = cell.indexOf('\n'); at >= 0; at = cell.indexOf('\n', at + 1)) lines++
  return lines
}

function isBlank(row: readonly string[] | undefined): boolean {
  return row === undefined || (row.length === 1 && row[0] === '')
}

function newlineOf(text: string): string {
  return text.includes('\r\n') ? '\r\n' : '\n'
}

/** A byte order mark is no part of a name. */
function cleanName(name: string): string {
  return name.replace(/^\uFEFF/, '').trim()
}

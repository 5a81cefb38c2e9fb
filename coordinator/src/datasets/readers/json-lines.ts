// JSON lines: one object a line, its fields are the columns.
import { datasetUnreadable } from '../samples.ts'
import { LineFile, utf8 } from './file-lines.ts'
import { BEGINNING, type ReadPlace, type SplitPart, type PartFiles } from './reader.ts'
import { cellsOf, type TableRow, type TableRun, type TableSource } from './table.ts'

const CURE = 'Correct the line: one JSON object on each.'

export class JsonLinesSource implements TableSource {
  readonly format = 'JSON lines'
  readonly bytes: TableSource['bytes']
  readonly #files: PartFiles
  #columns: readonly string[] = []

  static async open(files: PartFiles, bytes: TableSource['bytes']): Promise<JsonLinesSource> {
    const source = new JsonLinesSource(files, bytes)
    const file = await LineFile.open(files.train[0] ?? '')
    try {
      const [first = '{}'] = utf8((await file.from(0)).bytes, file.path).split('\n')
      source.#columns = Object.keys(objectOf(first, `${file.path}, line 1`))
    } finally {
      await file.close()
    }
    return source
  }

  private constructor(files: PartFiles, bytes: TableSource['bytes']) {
    this.#files = files
    this.bytes = bytes
  }

  get columns(): readonly string[] {
    return this.#columns
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun> {
    for (let i = from.file; i < this.#files[part].length; i++) {
      const file = await LineFile.open(this.#files[part][i] ?? '')
      try {
        yield* this.#readFile(file, i === from.file ? from : { ...BEGINNING, file: i })
      } finally {
        await file.close()
      }
    }
  }

  async *#readFile(file: LineFile, from: ReadPlace): AsyncIterable<TableRun> {
    let place = from
    for (;;) {
      const { bytes, isLast } = await file.from(place.offset)
      const lines = utf8(bytes, file.path).split('\n')
      if (lines.at(-1) === '') lines.pop()
      const first = place.row + 1
      const where = (row: number): string => `${file.path}, line ${first + row}`
      const rows = lines.map((line, row) => this.#rowOf(line, where(row)))
      place = { file: place.file, offset: place.offset + bytes.byteLength, row: place.row + lines.length }
      if (rows.length > 0) yield { cells: cellsOf(rows), next: place, bytes: bytes.byteLength, where }
      if (isLast) return
    }
  }

  #rowOf(line: string, where: string): TableRow {
    const object = objectOf(line, where)
    return this.#columns.map((name) => object[name])
  }
}

/** @throws GridError 'dataset-unreadable' naming the line */
function objectOf(line: string, where: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(line)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch (cause) {
    throw datasetUnreadable(where, 'is no JSON', CURE, cause)
  }
  throw datasetUnreadable(where, `expected a JSON object, got ${line.slice(0, 60)}`, CURE)
}

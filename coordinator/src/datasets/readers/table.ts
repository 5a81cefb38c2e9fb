// Rows of named columns → samples: what CSV, JSON lines, Parquet and TFRecord have in common. A cell is a number, a
// text or a list of numbers; the first row says how wide each column is.
import { GridError } from '@starling-grid/protocol'
import type { SampleForm, TargetForm } from '../forms.ts'
import { datasetUnreadable } from '../samples.ts'
import { ClassNames, type StoredClassNames } from './class-names.ts'
import { decimal } from './decimal.ts'
import { BEGINNING, type SplitPart, type ReadPlace, type SampleReader, type SampleRun } from './reader.ts'

export type TableCell = unknown
export type TableRow = readonly TableCell[]

/** Cells of some rows. Good until the next rows are read. */
export interface TableCells {
  readonly rows: number
  cell(row: number, column: number): TableCell
  /** NaN for a cell that is no finite number, and for a list */
  number(row: number, column: number): number
}

export interface TableRun {
  readonly cells: TableCells
  readonly next: ReadPlace
  readonly bytes: number
  /** "FILE, line 17" */
  where(row: number): string
}

/** A format of rows. */
export interface TableSource {
  readonly format: string
  /** of the cells of a row, in their order */
  readonly columns: readonly string[]
  /** What these columns make together where that is no flat row of numbers, such as an image. */
  form?(columns: readonly string[]): SampleForm | undefined
  read(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun>
  readonly bytes: Readonly<Record<SplitPart, number>>
}

/** Which columns are what. */
export interface TableChoice {
  /** absent: all columns that are no target */
  readonly inputs?: readonly string[]
  readonly target: { readonly kind: 'classes' | 'values' | 'labels'; readonly columns: readonly string[] }
  /** names of classes in the order of their numbers */
  readonly classes?: readonly string[]
  /** an empty cell: an error, a row less, or this number */
  readonly missing: 'error' | 'drop' | number
}

/** Numbers of one sample: more are images or mistakes. */
const MAX_COLUMNS = 1_000_000
const CURE = 'Correct the file; for missing values see --missing.'

export class TableReader implements SampleReader {
  readonly #source: TableSource
  readonly #choice: TableChoice
  readonly #inputs: readonly number[]
  readonly #targets: readonly number[]
  readonly #classes: ClassNames
  /** of each target column: numbers of its cell */
  readonly #targetWidths: readonly number[]
  readonly #targetSize: number
  /** values of one sample */
  readonly #elements: number
  readonly inputs: SampleForm

  /** @throws GridError 'usage' when a column is not there, 'dataset-unreadable' when there is no first row */
  static async open(source: TableSource, choice: TableChoice, state: unknown): Promise<TableReader> {
    const first = await firstRow(source)
    const stored = state as StoredClassNames | undefined
    const given: StoredClassNames | undefined =
      choice.classes === undefined ? undefined : { names: choice.classes, form: 'given' }
    return new TableReader(source, choice, first, new ClassNames(stored ?? given))
  }

  private constructor(source: TableSource, choice: TableChoice, first: TableRow, classes: ClassNames) {
    this.#source = source
    this.#choice = choice
    this.#classes = classes
    this.#targets = choice.target.columns.map((name) => indexOf(source, name))
    const others = source.columns.map((_, i) => i).filter((i) => !this.#targets.includes(i))
    this.#inputs = choice.inputs?.map((name) => indexOf(source, name)) ?? others
    if (this.#inputs.length === 0)
      throw new GridError('usage', 'expected columns beside the target as inputs, got none; name them with --inputs')
    const isClass = choice.target.kind === 'classes'
    this.#targetWidths = this.#targets.map((i) => (isClass ? 1 : widthOf(first[i])))
    this.#targetSize = this.#targetWidths.reduce((sum, width) => sum + width, 0)
    const widths = this.#inputs.map((i) => widthOf(first[i]))
    this.#elements = widths.reduce((sum, width) => sum + width, 0)
    if (this.#elements + this.#targetSize > MAX_COLUMNS)
      throw new GridError(
        'dataset-unreadable',
        `expected at most ${MAX_COLUMNS} numbers in a row, got ${this.#elements + this.#targetSize}`,
      )
    const names = this.#inputs.map((i) => source.columns[i] ?? '')
    const isFlat = widths.every((width) => width === 1)
    this.inputs = source.form?.(names) ?? {
      shape: [this.#elements],
      inputType: 'F32',
      inputScale: 1,
      ...(isFlat ? { inputNames: names } : {}),
    }
  }

  get format(): string {
    return this.#source.format
  }

  get bytes(): Readonly<Record<SplitPart, number>> {
    return this.#source.bytes
  }

  targets(): TargetForm {
    const { kind, columns } = this.#choice.target
    const names =
      kind === 'classes' ? this.#classes.names : columns.flatMap((name, i) => partsOf(name, this.#targetWidths[i] ?? 1))
    return { kind, size: names.length, names }
  }

  settle(): Int32Array | undefined {
    return this.#choice.target.kind === 'classes' ? this.#classes.settle() : undefined
  }

  state(): StoredClassNames {
    return this.#classes.stored()
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<SampleRun> {
    for await (const run of this.#source.read(part, from)) yield this.#samplesOf(run)
  }

  #samplesOf(run: TableRun): SampleRun {
    const { cells } = run
    const { kind } = this.#choice.target
    const values = cells.rows * this.#elements
    const x = this.inputs.inputType === 'U8' ? new Uint8Array(values) : new Float32Array(values)
    const y = targetsOf(kind, cells.rows * this.#targetSize)
    let count = 0
    for (let row = 0; row < cells.rows; row++) {
      const place = { row, where: () => run.where(row) }
      const isWhole = this.#copyInputs(cells, place, x, count * this.#elements)
      if (isWhole && this.#copyTargets(cells, place, y, count * this.#targetSize)) count++
    }
    return {
      count,
      x: x.subarray(0, count * this.#elements),
      y: y.subarray(0, count * this.#targetSize),
      next: run.next,
      dropped: cells.rows - count,
      bytes: run.bytes,
    }
  }

  /** false: the row is left out */
  #copyInputs(cells: TableCells, { row, where }: TableRowPlace, x: SampleRun['x'], at: number): boolean {
    let place = at
    for (const column of this.#inputs) {
      const value = cells.number(row, column)
      if (value === value) {
        x[place++] = value
        continue
      }
      const cell = cells.cell(row, column)
      if (typeof cell === 'object' && cell !== null) {
        const list = this.#numbersOf(cell, column, { room: at + this.#elements - place, where })
        if (list === undefined) return false
        x.set(list, place)
        place += list.length
        continue
      }
      const other = this.#instead(cell, column, where)
      if (other === undefined) return false
      x[place++] = other
    }
    if (place === at + this.#elements) return true
    throw datasetUnreadable(where(), `expected ${this.#elements} numbers as in the first row, got ${place - at}`, CURE)
  }

  /** The numbers of a list; undefined: one is missing, the row is left out. */
  #numbersOf(cell: object, column: number, { room, where }: ListPlace): ArrayLike<number> | undefined {
    const values = flatten(cell)
    if (values.length > room)
      throw datasetUnreadable(where(), `expected a list of at most ${room} numbers, got ${values.length}`, CURE)
    if (values instanceof Uint8Array) return values
    let whole: ArrayLike<unknown> = values
    for (let i = 0; i < values.length; i++) {
      const value = values[i]
      if (typeof value === 'number' && value - value === 0) continue
      const other = this.#instead(value, column, where)
      if (other === undefined) return undefined
      if (whole === values) whole = Array.from(values as ArrayLike<number>)
      ;(whole as unknown[])[i] = other
    }
    return whole as ArrayLike<number>
  }

  /** What stands for a cell that is no number; undefined: nothing, the row is left out. */
  #instead(cell: TableCell, column: number, where: () => string): number | undefined {
    const { missing } = this.#choice
    const isMissing = cell === undefined || cell === null || MISSING.has(String(cell).trim().toLowerCase())
    if (isMissing && missing === 'drop') return undefined
    if (isMissing && typeof missing === 'number') return missing
    throw datasetUnreadable(
      where(),
      `expected a number in column ${this.#source.columns[column]}, got ${isMissing ? 'nothing' : shown(cell)}`,
      isMissing ? 'Correct it, or use --missing drop or --missing NUMBER.' : CURE,
    )
  }

  #copyTargets(cells: TableCells, place: TableRowPlace, y: SampleRun['y'], from: number): boolean {
    if (this.#choice.target.kind === 'classes') return this.#copyClass(cells, place, y, from)
    const { row, where } = place
    let at = from
    for (const [i, column] of this.#targets.entries()) {
      const wanted = this.#targetWidths[i] ?? 1
      const cell = cells.cell(row, column)
      const values: ArrayLike<TableCell> = typeof cell === 'object' && cell !== null ? flatten(cell) : [cell]
      if (values.length !== wanted)
        throw datasetUnreadable(
          where(),
          `expected ${wanted} numbers in column ${this.#source.columns[column]} as in the first row, ` +
            `got ${values.length}`,
          CURE,
        )
      for (let k = 0; k < wanted; k++) {
        const value = this.#target(values[k], column, where)
        if (value === undefined) return false
        y[at++] = value
      }
    }
    return true
  }

  #copyClass(cells: TableCells, { row, where }: TableRowPlace, y: SampleRun['y'], at: number): boolean {
    const column = this.#targets[0] ?? 0
    const cell = cells.cell(row, column)
    const name = typeof cell === 'string' ? cell : String(cell ?? '')
    if (name !== '') {
      y[at] = this.#classes.numberOf(name, where)
      return true
    }
    if (this.#choice.missing === 'drop') return false
    throw datasetUnreadable(where(), `expected a class in column ${this.#source.columns[column]}, got nothing`, CURE)
  }

  /** A value or label; undefined: the row is left out. */
  #target(cell: TableCell, column: number, where: () => string): number | undefined {
    const isLabel = this.#choice.target.kind === 'labels'
    const value = isLabel ? labelOf(cell) : numberOf(cell)
    const kept = value === value ? value : this.#instead(cell, column, where)
    if (kept === undefined || !isLabel || kept === 0 || kept === 1) return kept
    throw datasetUnreadable(
      where(),
      `expected 0 or 1 in column ${this.#source.columns[column]}, got ${shown(cell)}`,
      CURE,
    )
  }
}

/** Rows that a source made values of. */
export function cellsOf(rows: readonly TableRow[]): TableCells {
  return {
    rows: rows.length,
    cell: (row, column) => rows[row]?.[column],
    number: (row, column) => numberOf(rows[row]?.[column]),
  }
}

interface TableRowPlace {
  readonly row: number
  readonly where: () => string
}

interface ListPlace {
  /** numbers that it may have */
  readonly room: number
  readonly where: () => string
}

/** How a missing value is written, beside nothing. */
const MISSING = new Set(['', 'na', 'n/a', 'nan', 'null', 'none', '?'])

/** A column index. @throws GridError 'usage' */
function indexOf({ columns }: TableSource, name: string): number {
  const found = columns.indexOf(name)
  if (found >= 0) return found
  throw new GridError(
    'usage',
    `expected a column of the file, got "${name}"; it has ` +
      `${columns.slice(0, 30).join(', ')}${columns.length > 30 ? ', …' : ''}`,
  )
}

async function firstRow(source: TableSource): Promise<TableRow> {
  for await (const { cells } of source.read('train', BEGINNING))
    if (cells.rows > 0) return source.columns.map((_, column) => cells.cell(0, column))
  throw new GridError('dataset-unreadable', 'expected rows of samples, got none; name files that hold some')
}

function targetsOf(kind: TableChoice['target']['kind'], length: number): SampleRun['y'] {
  if (kind === 'classes') return new Int32Array(length)
  return kind === 'values' ? new Float32Array(length) : new Uint8Array(length)
}

/** NaN for what is no finite number. */
function numberOf(cell: TableCell): number {
  if (typeof cell === 'string') return decimal(cell)
  if (typeof cell === 'number') return Number.isFinite(cell) ? cell : Number.NaN
  if (typeof cell === 'boolean' || typeof cell === 'bigint') return Number(cell)
  return Number.NaN
}

function labelOf(cell: TableCell): number {
  if (cell === 'true' || cell === 'True') return 1
  if (cell === 'false' || cell === 'False') return 0
  return numberOf(cell)
}

function flatten(cell: object): ArrayLike<unknown> {
  if (ArrayBuffer.isView(cell) && !(cell instanceof DataView)) return cell as Float32Array
  if (!Array.isArray(cell)) return [cell]
  return cell.flat(8).map((value: unknown) => (typeof value === 'bigint' ? Number(value) : value))
}

/** Names of the numbers of a target column. */
function partsOf(name: string, width: number): string[] {
  return width === 1 ? [name] : Array.from({ length: width }, (_, i) => `${name}[${i}]`)
}

function widthOf(cell: TableCell): number {
  return typeof cell === 'object' && cell !== null ? flatten(cell).length : 1
}

function shown(cell: TableCell): string {
  if (typeof cell === 'number') return String(cell)
  return (JSON.stringify(typeof cell === 'bigint' ? Number(cell) : cell) ?? 'nothing').slice(0, 60)
}

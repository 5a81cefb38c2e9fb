// Rows of a text table as the places of their cells in the bytes, and the numbers that they are. No text is made of a
// cell that is a number: that is most of what reading a large table takes. Takes only what needs no parser: no
// quotation mark, each row as wide as the first. Everything else is papaparse's (csv.ts).
import { isUtf8 } from 'node:buffer'
import { decimal, MOST_DIGITS, POWERS } from './decimal.ts'
import type { TableCell, TableCells } from './table.ts'

const NEWLINE = 0x0a
const RETURN = 0x0d
const QUOTE = 0x22
const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const MOST_ASCII = 0x7f
const ORDER_MARK = Buffer.of(0xef, 0xbb, 0xbf)
const CRLF = Buffer.of(RETURN, NEWLINE)
/** Digits of a cell that is none. */
const NO_NUMBER = 2 ** 24
/** What a delimiter is not, here: parts of lines, of cells and of numbers. */
const NO_DELIMITER = /^["\r\n.\-0-9]$/

export interface PlainForm {
  /** of each row */
  readonly columns: number
  readonly delimiter: string
}

interface RowForm {
  readonly columns: number
  readonly separator: number
  /** bytes of a line's end */
  readonly ending: number
}

interface ScannedCells {
  /** where each cell begins, and where one behind the last would */
  readonly starts: Uint32Array
  /** NaN for what is more than digits, a sign and a point */
  readonly values: Float64Array
}

export class PlainRows {
  readonly #form: Omit<RowForm, 'ending'>
  readonly #isPlain: boolean
  /** of all runs: some MB, which the system would clear anew for each */
  #memory = memoryFor(0)

  constructor({ columns, delimiter }: PlainForm) {
    const separator = delimiter.charCodeAt(0)
    this.#form = { columns, separator }
    this.#isPlain = delimiter.length === 1 && separator <= MOST_ASCII && !NO_DELIMITER.test(delimiter)
  }

  /** Good until the next call. Undefined where the bytes are no such rows. `skipped`: rows that are no samples. */
  cellsOf(bytes: Buffer, skipped: number): TableCells | undefined {
    if (!this.#isPlain || bytes.at(-1) !== NEWLINE || bytes.includes(QUOTE)) return undefined
    if (bytes.subarray(0, ORDER_MARK.length).equals(ORDER_MARK) || !isUtf8(bytes)) return undefined
    const ending = bytes.includes(RETURN) && bytes.includes(CRLF) ? 2 : 1
    const form = { ...this.#form, ending }
    const cells = this.#scan(bytes, form, Math.ceil(bytes.length / 2)) ?? this.#scan(bytes, form, bytes.length)
    if (cells === undefined || cells === 0) return undefined
    return new PlainCells(bytes, this.#memory, { ...form, rows: cells / form.columns, skipped })
  }

  /** How many cells there are, 0 where rows differ in width; undefined for more than `most`. */
  #scan(bytes: Buffer, form: RowForm, most: number): number | undefined {
    if (this.#memory.values.length <= most) this.#memory = memoryFor(most)
    const count = scan(bytes, form, this.#memory)
    return count < this.#memory.values.length ? count : undefined
  }
}

function memoryFor(cells: number): ScannedCells {
  return { starts: new Uint32Array(cells + 1), values: new Float64Array(cells + 1) }
}

/** How many cells there are, 0 where rows differ in width. One pass over the bytes; cells without room are left out. */
function scan(bytes: Buffer, { columns, separator, ending }: RowForm, { starts, values }: ScannedCells): number {
  const { length } = bytes // once: the loop takes three times as long where it asks the buffer
  let [count, line, wanted] = [0, 0, columns]
  let [whole, digits, point, sign] = [0, 0, -1, 1]
  starts[0] = 0
  for (let i = 0; i < length; i++) {
    const byte = bytes[i] ?? 0
    const digit = byte - ZERO
    if (digit >= 0 && digit <= 9) {
      whole = whole * 10 + digit
      digits++
    } else if (byte === separator || byte === NEWLINE) {
      values[count++] = sign * valueOf(whole, digits, point)
      starts[count] = i + 1
      whole = 0
      digits = 0
      point = -1
      sign = 1
      if (byte === separator) continue
      if (count !== wanted || !isEndOfRow(bytes, line, i, ending)) return 0
      line = i + 1
      wanted += columns
    } else if (byte === POINT && point < 0) point = digits
    else if (byte === MINUS && starts[count] === i) sign = -1
    else digits = NO_NUMBER
  }
  return count
}

/** A blank line may be one at the end of the file. */
function isEndOfRow(bytes: Buffer, line: number, at: number, ending: number): boolean {
  return (ending === 1 || bytes[at - 1] === RETURN) && at + 1 - line !== ending
}

/** `point`: digits before it. As decimal() makes it. */
function valueOf(whole: number, digits: number, point: number): number {
  if (!(digits > 0 && digits <= MOST_DIGITS)) return Number.NaN
  return point < 0 ? whole : whole / (POWERS[digits - point] ?? 1)
}

class PlainCells implements TableCells {
  readonly rows: number
  readonly #bytes: Buffer
  readonly #starts: Uint32Array
  readonly #values: Float64Array
  readonly #columns: number
  readonly #ending: number
  /** cells of rows that are skipped */
  readonly #before: number

  constructor(
    bytes: Buffer,
    { starts, values }: ScannedCells,
    { columns, ending, rows, skipped }: RowForm & { readonly rows: number; readonly skipped: number },
  ) {
    this.#bytes = bytes
    this.#starts = starts
    this.#values = values
    this.#columns = columns
    this.#ending = ending
    this.#before = skipped * columns
    this.rows = rows - skipped
  }

  cell(row: number, column: number): TableCell {
    return this.#text(row, column)
  }

  number(row: number, column: number): number {
    const value = this.#values[this.#before + row * this.#columns + column] ?? 0
    return value === value ? value : decimal(this.#text(row, column))
  }

  #text(row: number, column: number): string {
    const at = this.#before + row * this.#columns + column
    const end = (this.#starts[at + 1] ?? 0) - (column + 1 === this.#columns ? this.#ending : 1)
    return this.#bytes.toString('utf8', this.#starts[at], end)
  }
}

// Rows of a text table as the places of their cells in the bytes, and the numbers that they are. No text is made of a
// cell that is a number: that is most of what reading a large table takes. Takes only what needs no parser: no quotation
// mark, each row as wide as the first. Everything else is papaparse's (csv.ts).
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
  /** rows at the beginning that are no samples */
  readonly skipped: number
}

/** Undefined where the bytes are no such rows. */
export function plainCells(bytes: Buffer, { columns, delimiter, skipped }: PlainForm): TableCells | undefined {
  const separator = delimiter.charCodeAt(0)
  if (delimiter.length !== 1 || separator > MOST_ASCII || NO_DELIMITER.test(delimiter)) return undefined
  if (bytes.at(-1) !== NEWLINE || bytes.includes(QUOTE)) return undefined
  if (bytes.subarray(0, ORDER_MARK.length).equals(ORDER_MARK) || !isUtf8(bytes)) return undefined
  const ending = bytes.includes(RETURN) && bytes.includes(CRLF) ? 2 : 1
  const form = { columns, separator, ending }
  const found = scanned(bytes, form, Math.ceil(bytes.length / 2) + 2) ?? scanned(bytes, form, bytes.length + 2)
  return found && new PlainCells(bytes, found, { columns, ending, skipped })
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

/** Undefined where rows differ in width, and where there are more cells than `room`. One pass over the bytes. */
function scanned(bytes: Buffer, { columns, separator, ending }: RowForm, room: number): ScannedCells | undefined {
  const { length } = bytes // once: the loop takes three times as long where it asks the buffer
  const starts = new Uint32Array(room)
  const values = new Float64Array(room)
  let [count, line, wanted] = [0, 0, columns]
  let [whole, digits, point, sign] = [0, 0, -1, 1]
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
      if (count !== wanted || !isEndOfRow(bytes, line, i, ending)) return undefined
      line = i + 1
      wanted += columns
    } else if (byte === POINT && point < 0) point = digits
    else if (byte === MINUS && starts[count] === i) sign = -1
    else digits = NO_NUMBER
  }
  return count < room ? { starts: starts.subarray(0, count + 1), values } : undefined
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
    { columns, ending, skipped }: Pick<RowForm, 'columns' | 'ending'> & Pick<PlainForm, 'skipped'>,
  ) {
    this.#bytes = bytes
    this.#starts = starts
    this.#values = values
    this.#columns = columns
    this.#ending = ending
    this.#before = skipped * columns
    this.rows = Math.max(0, (starts.length - 1) / columns - skipped)
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

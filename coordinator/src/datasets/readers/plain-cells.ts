// Rows of a text table as the places of their cells in the bytes. No text is made of a cell that is a number: that is
// most of what reading a large table takes. Takes only what needs no parser: no quotation mark, each row as wide as the
// first. Everything else is papaparse's (csv.ts).
import { isUtf8 } from 'node:buffer'
import { decimalIn } from './decimal.ts'
import type { TableCell, TableCells } from './table.ts'

const NEWLINE = 0x0a
const RETURN = 0x0d
const QUOTE = 0x22
const MOST_ASCII = 0x7f
const ORDER_MARK = Buffer.of(0xef, 0xbb, 0xbf)
const CRLF = Buffer.of(RETURN, NEWLINE)

export interface PlainForm {
  /** of each row */
  readonly columns: number
  readonly delimiter: string
  /** rows at the beginning that are no samples */
  readonly skipped: number
}

/** Undefined where the bytes are no such rows. They end with a row. */
export function plainCells(bytes: Buffer, { columns, delimiter, skipped }: PlainForm): TableCells | undefined {
  const separator = delimiter.charCodeAt(0)
  if (delimiter.length !== 1 || separator > MOST_ASCII || [NEWLINE, RETURN, QUOTE].includes(separator)) return undefined
  if (bytes.includes(QUOTE) || bytes.subarray(0, 3).equals(ORDER_MARK) || !isUtf8(bytes)) return undefined
  const ending = bytes.includes(RETURN) && bytes.includes(CRLF) ? 2 : 1
  const starts = startsOf(bytes, { columns, separator, ending })
  return starts && new PlainCells(bytes, starts, { columns, ending, skipped })
}

interface RowForm {
  readonly columns: number
  readonly separator: number
  /** bytes of a line's end */
  readonly ending: number
}

/** Where each cell begins, and where one behind the last would. `room`: for so many. */
function startsOf(
  bytes: Buffer,
  { columns, separator, ending }: RowForm,
  room = Math.ceil(bytes.length / 2) + 2,
): Uint32Array | undefined {
  const { length } = bytes // once: the loop takes three times as long where it asks the buffer
  const starts = new Uint32Array(room)
  let count = 0
  let line = 0
  let wanted = columns
  for (let i = 0; i < length; i++) {
    const byte = bytes[i]
    if (byte === separator) starts[++count] = i + 1
    else if (byte === NEWLINE) {
      const isEnd = ending === 1 || bytes[i - 1] === RETURN
      // a blank line may be one at the end of the file
      if (!isEnd || count + 1 !== wanted || i + 1 - line === ending) return undefined
      line = i + 1
      wanted += columns
      starts[++count] = line
    }
  }
  if (line < length && count + 1 !== wanted) return undefined
  if (line < length) starts[++count] = length + ending // as if its line ended
  return count < room ? starts.subarray(0, count + 1) : startsOf(bytes, { columns, separator, ending }, length + 2)
}

class PlainCells implements TableCells {
  readonly rows: number
  readonly #bytes: Buffer
  readonly #starts: Uint32Array
  readonly #columns: number
  readonly #ending: number
  /** cells of rows that are skipped */
  readonly #before: number

  constructor(
    bytes: Buffer,
    starts: Uint32Array,
    { columns, ending, skipped }: Pick<RowForm, 'columns' | 'ending'> & Pick<PlainForm, 'skipped'>,
  ) {
    this.#bytes = bytes
    this.#starts = starts
    this.#columns = columns
    this.#ending = ending
    this.#before = skipped * columns
    this.rows = Math.max(0, (starts.length - 1) / columns - skipped)
  }

  cell(row: number, column: number): TableCell {
    const at = this.#before + row * this.#columns + column
    return this.#bytes.toString('utf8', this.#starts[at], this.#endOf(at, column))
  }

  number(row: number, column: number): number {
    const at = this.#before + row * this.#columns + column
    return decimalIn(this.#bytes, this.#starts[at] ?? 0, this.#endOf(at, column))
  }

  #endOf(at: number, column: number): number {
    return (this.#starts[at + 1] ?? 0) - (column + 1 === this.#columns ? this.#ending : 1)
  }
}

// Arrays as columns of a table. They come from an .npz file, from several .npy or IDX files, or from the columns of a
// single file. Row i of each array belongs to sample i.
import { GridError } from '@starling-grid/protocol'
import type { SampleForm } from '../forms.ts'
import { datasetUnreadable, PIXEL_SCALE } from '../samples.ts'
import { type ArrayFormat, type ArrayGroup, groupsOf, OpenArray, type OpenArrayGroup } from './array-files.ts'
import { channelsFirst, sampleLayout } from './array-layout.ts'
import { type NpyHeader, valuesIn } from './npy-header.ts'
import type { NpyValues } from './npy-values.ts'
import { BEGINNING, type ReadPlace, RUN_BYTES, type SplitPart, type PartFiles } from './reader.ts'
import { cellsOf, type TableCell, type TableRow, type TableRun, type TableSource } from './table.ts'

export interface ArrayOptions {
  readonly format: ArrayFormat
  /** columns that are read; absent: all */
  readonly wanted?: readonly string[]
  /** of images: where their channels are; absent: found out by the sizes */
  readonly channels?: 'first' | 'last'
}

const CURE = 'Save arrays whose first dimension is the number of samples.'

export class ArraysSource implements TableSource {
  readonly format: string
  readonly columns: readonly string[]
  readonly bytes: TableSource['bytes']
  readonly #groups: Readonly<Record<SplitPart, readonly OpenArrayGroup[]>>
  readonly #options: ArrayOptions
  /** of the first group, by column */
  readonly #headers: ReadonlyMap<string, NpyHeader>
  /** the columns of one array, not arrays */
  readonly #isSpread: boolean

  /** @throws GridError 'dataset-unreadable' */
  static async open(files: PartFiles, bytes: TableSource['bytes'], options: ArrayOptions): Promise<ArraysSource> {
    const { format } = options
    const groups = { train: groupsOf(files.train, format), validation: groupsOf(files.validation, format, files.train) }
    const headers = new Map<string, NpyHeader>()
    const group = await groups.train[0]?.()
    if (group === undefined) throw new GridError('dataset-unreadable', 'expected files of arrays, got none')
    try {
      for (const place of group.arrays) {
        if (options.wanted !== undefined && group.arrays.length > 1 && !options.wanted.includes(place.name)) continue
        headers.set(place.name, await headerOf(place))
      }
    } finally {
      group.close()
    }
    const isSpread = format !== 'npz' && files.train.length === 1
    return new ArraysSource({ groups, bytes, options, headers, isSpread, format: format.toUpperCase() }, group)
  }

  private constructor(
    parts: {
      readonly groups: Readonly<Record<SplitPart, readonly OpenArrayGroup[]>>
      readonly bytes: TableSource['bytes']
      readonly options: ArrayOptions
      readonly headers: ReadonlyMap<string, NpyHeader>
      readonly isSpread: boolean
      readonly format: string
    },
    group: ArrayGroup,
  ) {
    this.format = parts.format
    this.bytes = parts.bytes
    this.#groups = parts.groups
    this.#options = parts.options
    this.#headers = parts.headers
    this.#isSpread = parts.isSpread
    const [first] = parts.headers.values()
    this.columns = parts.isSpread
      ? Array.from({ length: first === undefined ? 0 : valuesIn(first) }, (_, i) => String(i + 1))
      : group.arrays.map(({ name }) => name)
  }

  form(columns: readonly string[]): SampleForm | undefined {
    const [name = '', ...more] = columns
    const header = this.#headers.get(name)
    if (this.#isSpread || more.length > 0 || header === undefined || header.shape.length < 3) return undefined
    const { shape, isPixels } = sampleLayout(header, this.#options.channels)
    return { shape, inputType: isPixels ? 'U8' : 'F32', inputScale: isPixels ? PIXEL_SCALE : 1 }
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<TableRun> {
    for (let i = from.file; i < this.#groups[part].length; i++) {
      const group = await this.#groups[part][i]?.()
      if (group === undefined) return
      try {
        yield* this.#readGroup(group, i === from.file ? from : { ...BEGINNING, file: i })
      } finally {
        group.close()
      }
    }
  }

  async *#readGroup(group: ArrayGroup, from: ReadPlace): AsyncIterable<TableRun> {
    const arrays = await this.#openAll(group)
    try {
      yield* this.#readRows(group, arrays, from)
    } finally {
      for (const array of arrays) await array.close()
    }
  }

  async *#readRows(group: ArrayGroup, arrays: readonly OpenArray[], from: ReadPlace): AsyncIterable<TableRun> {
    const rows = requireSameRows(arrays, group.path)
    const perRun = Math.max(1, Math.floor(RUN_BYTES / arrays.reduce((sum, { rowBytes }) => sum + rowBytes, 1)))
    for (const array of arrays) await array.skip(from.offset)
    for (let at = from.offset; at < rows; at += perRun) {
      const count = Math.min(perRun, rows - at)
      const values: NpyValues[] = []
      for (const array of arrays) values.push(await array.take(count, at))
      if (at + count === rows) for (const array of arrays) await array.end()
      yield {
        cells: cellsOf(this.#rowsOf(arrays, values, count)),
        next: { file: from.file, offset: at + count, row: at + count },
        bytes: Math.floor((group.bytes * (at + count)) / rows) - Math.floor((group.bytes * at) / rows),
        where: (row) => `${group.path}, row ${1 + at + row}`,
      }
    }
  }

  async #openAll({ path, arrays }: ArrayGroup): Promise<OpenArray[]> {
    const open: OpenArray[] = []
    for (const [name, first] of this.#headers) {
      const place = arrays.find((found) => found.name === name)
      if (place === undefined)
        throw datasetUnreadable(path, `expected an array ${name} as in the first file, got none`, CURE)
      const array = await OpenArray.open(place)
      if (array.header.shape.slice(1).join() !== first.shape.slice(1).join())
        throw datasetUnreadable(
          place.where,
          `expected rows of (${first.shape.slice(1).join(', ')}) as in the first file, ` +
            `got (${array.header.shape.slice(1).join(', ')})`,
          CURE,
        )
      open.push(array)
    }
    return open
  }

  #rowsOf(arrays: readonly OpenArray[], values: readonly NpyValues[], count: number): TableRow[] {
    const cells = arrays.map((array, i) => this.#cellsOf(array, values[i] ?? []))
    const [only] = cells
    if (this.#isSpread && only !== undefined)
      return Array.from({ length: count }, (_, row) => {
        const cell = only(row)
        return typeof cell === 'object' && cell !== null ? Array.from(cell as ArrayLike<TableCell>) : [cell]
      })
    const places = this.columns.map((name) => arrays.findIndex((array) => array.name === name))
    return Array.from({ length: count }, (_, row) => places.map((place) => cells[place]?.(row)))
  }

  #cellsOf({ header }: OpenArray, values: NpyValues): (row: number) => TableCell {
    const size = valuesIn(header)
    if (size === 1 && header.shape.length < 3) return (row) => values[row]
    const cell = (row: number) => values.slice(row * size, (row + 1) * size)
    if (this.#isSpread || header.shape.length < 3 || Array.isArray(values)) return cell
    const { shape, isLast } = sampleLayout(header, this.#options.channels)
    return isLast ? (row) => channelsFirst(cell(row) as Uint8Array, shape) : cell
  }
}

/** Rows of all. @throws GridError 'dataset-unreadable' */
function requireSameRows(arrays: readonly OpenArray[], path: string): number {
  const [first] = arrays
  const rows = first?.header.shape[0] ?? 0
  const other = arrays.find(({ header }) => header.shape[0] !== rows)
  if (other === undefined || first === undefined) return rows
  throw datasetUnreadable(
    path,
    `expected arrays of the same number of rows, got ${rows} in ${first.name} and ${other.header.shape[0]} in ` +
      other.name,
    'Choose the arrays with --inputs and the target.',
  )
}

async function headerOf(place: ArrayGroup['arrays'][number]): Promise<NpyHeader> {
  const array = await OpenArray.open(place)
  await array.close()
  return array.header
}

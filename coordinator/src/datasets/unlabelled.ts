// Samples without targets, for those who predict: images, files of rows, and rows as text, by the same readers that
// import datasets.
import { extname } from 'node:path'
import { GridError, type ModelSignature, storedElementsOf } from '@starling-grid/protocol'
import Papa from 'papaparse'
import { CsvSource } from './readers/csv.ts'
import { copyImage } from './readers/images.ts'
import { JsonLinesSource } from './readers/json-lines.ts'
import { ENDINGS } from './readers/open.ts'
import { BEGINNING } from './readers/reader.ts'
import { cellsOf, TableReader, type TableSource } from './readers/table.ts'
import { markAll } from './sources.ts'

export interface UnlabelledOptions {
  readonly signature: ModelSignature
  /** images of other sizes are scaled */
  readonly isScaled: boolean
  /** the first row of a table names its columns */
  readonly header: boolean
  /** of cells; absent: found out */
  readonly delimiter?: string
}

export interface UnlabelledRun {
  /** where each sample comes from, for people: a file, or a file and its row */
  readonly names: readonly string[]
  /** (names, …stored shape) */
  readonly x: Uint8Array | Float32Array
  /** of the sources, that were read for it */
  readonly bytes: number
}

export interface UnlabelledSource {
  /** in all its files */
  readonly bytes: number
  /** more than one sample is expected of it: a folder, or a file of rows */
  readonly isBatch: boolean
  read(): AsyncIterable<UnlabelledRun>
}

/** Files of these formats hold samples without a target. */
const READ = new Set(['csv', 'jsonl', 'images'])

/**
 * A file or a folder with all in it. Files of other formats in a folder are left out.
 * @throws GridError 'dataset-unreadable' when there is nothing to read
 */
export async function openUnlabelled(path: string, options: UnlabelledOptions): Promise<UnlabelledSource> {
  const [mark] = await markAll([path])
  const files = (mark?.files ?? []).filter((file) => READ.has(formatOf(file.path) ?? ''))
  if (files.length === 0)
    throw new GridError(
      'dataset-unreadable',
      `expected images or rows (${[...READ].flatMap(endingsOf).join(' ')}), got none in ${path}; name others`,
    )
  return {
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    isBatch: files.length > 1 || files[0]?.path !== path || formatOf(path) !== 'images',
    async *read() {
      for (const file of files)
        if (formatOf(file.path) === 'images') yield await image(file.path, file.bytes, options)
        else yield* rows(await tableOf(file.path, options), file.path, options)
    },
  }
}

/** One row of a table, such as `5.1,3.5,1.4,0.2`. @throws GridError 'dataset-unreadable' */
export function openRow(text: string, options: UnlabelledOptions): UnlabelledSource {
  const { data } = Papa.parse<string[]>(text, options.delimiter === undefined ? {} : { delimiter: options.delimiter })
  const cells = data[0] ?? []
  const { inputNames } = options.signature
  const columns = inputNames?.length === cells.length ? inputNames : cells.map((_, i) => String(i + 1))
  const source: TableSource = {
    format: 'row',
    columns,
    bytes: { train: text.length, validation: 0 },
    async *read() {
      yield { cells: cellsOf(data), next: BEGINNING, bytes: text.length, where: () => `the row ${text}` }
    },
  }
  return { bytes: text.length, isBatch: false, read: () => rows(source, undefined, options, text) }
}

function formatOf(path: string): string | undefined {
  return ENDINGS[extname(path).toLowerCase()]
}

function endingsOf(format: string): string[] {
  return Object.keys(ENDINGS).filter((ending) => ENDINGS[ending] === format)
}

async function image(path: string, bytes: number, { signature, isScaled }: UnlabelledOptions): Promise<UnlabelledRun> {
  const shape = signature.storedShape ?? signature.inputShape
  if (shape.length !== 3 || (shape[0] !== 1 && shape[0] !== 3))
    throw new GridError(
      'dataset-unreadable',
      `expected samples of [${shape.join(', ')}] numbers, got the image ${path}; name rows, or a model of images`,
    )
  const x = new Uint8Array(storedElementsOf(signature))
  const cure = 'Use --resize, which scales it.'
  copyImage(path, { shape, isScaled, cure }, x)
  return { names: [path], x, bytes }
}

function tableOf(path: string, { header, delimiter }: UnlabelledOptions): Promise<TableSource> {
  const files = { train: [path], validation: [] }
  const bytes = { train: 0, validation: 0 }
  if (formatOf(path) === 'jsonl') return JsonLinesSource.open(files, bytes)
  return CsvSource.open(files, bytes, { header, ...(delimiter === undefined ? {} : { delimiter }) })
}

async function* rows(
  source: TableSource,
  path: string | undefined,
  { signature, header }: UnlabelledOptions,
  name?: string,
): AsyncIterable<UnlabelledRun> {
  const { inputNames } = signature
  const isNamed = inputNames !== undefined && (path === undefined ? columnsAre(source, inputNames) : header)
  const reader = await TableReader.open(
    source,
    { ...(isNamed ? { inputs: inputNames } : {}), target: { kind: 'values', columns: [] }, missing: 'error' },
    undefined,
  )
  requireWidth(reader, source, signature)
  let row = 0
  for await (const { count, x, bytes } of reader.read('train', BEGINNING)) {
    const first = row
    row += count
    const names = Array.from({ length: count }, (_, i) => name ?? `${path}:${first + i + 1}`)
    yield { names, x: x instanceof Float32Array ? x : Float32Array.from(x), bytes }
  }
}

function columnsAre({ columns }: TableSource, names: readonly string[]): boolean {
  return columns.join('\n') === names.join('\n')
}

function requireWidth({ inputs }: TableReader, source: TableSource, signature: ModelSignature): void {
  const wanted = storedElementsOf(signature)
  const [found = 0] = inputs.shape
  if (found === wanted) return
  const names = signature.inputNames === undefined ? '' : ` (${signature.inputNames.slice(0, 30).join(', ')})`
  throw new GridError(
    'dataset-unreadable',
    `expected ${wanted} numbers${names} in a row, got ${found} (${source.columns.slice(0, 30).join(', ')}); ` +
      'name the columns in the first row, or leave the others out',
  )
}

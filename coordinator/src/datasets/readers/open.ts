// Which reader a source gets: by --format, by the ending of its files, or because it is a folder of images.
import { extname } from 'node:path'
import { GridError } from '@starling-grid/protocol'
import type { ChatImport } from '../chat-words.ts'
import type { SourceMark } from '../sources.ts'
import { ArraysSource } from './arrays.ts'
import { CsvSource } from './csv.ts'
import { type ImageOptions, ImageReader } from './images.ts'
import { JsonLinesSource } from './json-lines.ts'
import { ParquetSource } from './parquet.ts'
import type { PartFiles, SampleReader, SplitPart } from './reader.ts'
import { type TableSource, type TableChoice, TableReader } from './table.ts'
import { TfRecordSource } from './tfrecord.ts'

export const FORMATS = ['csv', 'jsonl', 'npy', 'npz', 'idx', 'parquet', 'tfrecord', 'images', 'text'] as const
export type DatasetFormat = (typeof FORMATS)[number]

export interface ImportOptions {
  /** absent: by the ending of the files */
  readonly format?: DatasetFormat
  readonly csv: { readonly header: boolean; readonly delimiter?: string }
  readonly table: Pick<TableChoice, 'inputs' | 'classes' | 'missing'> & { readonly target?: TableChoice['target'] }
  readonly images: ImageOptions
  /** of images in arrays: where their channels are; absent: found out by the sizes */
  readonly channels?: 'first' | 'last'
  /** of a text: what a token is; a path is one of a tokenizer.json */
  readonly tokens: string
  /** JSON lines and texts become samples of tokens with their targets; absent: tables and texts */
  readonly chat?: ChatImport
}

export interface ReaderParts {
  readonly marks: Readonly<Record<SplitPart, readonly SourceMark[]>>
  readonly options: ImportOptions
  readonly seed: number
  /** what a reader of the same source learned before */
  readonly state: unknown
}

/** ending of a file → its format */
export const ENDINGS: Readonly<Record<string, DatasetFormat>> = {
  '.csv': 'csv',
  '.tsv': 'csv',
  '.jsonl': 'jsonl',
  '.ndjson': 'jsonl',
  '.npy': 'npy',
  '.npz': 'npz',
  '.idx': 'idx',
  '.parquet': 'parquet',
  '.tfrecord': 'tfrecord',
  '.tfrecords': 'tfrecord',
  '.png': 'images',
  '.jpg': 'images',
  '.jpeg': 'images',
  '.txt': 'text',
}

/** MNIST's files have names such as train-images-idx3-ubyte, and .gz behind it. */
const IDX_NAME = /([-.]idx\d-ubyte|\.idx)(\.gz)?$/i

function endingOf(path: string): string {
  return IDX_NAME.test(path) ? '.idx' : extname(path).toLowerCase()
}

/** @throws GridError 'usage' when it cannot be told */
export function formatOf(
  paths: readonly string[],
  { format }: ImportOptions,
  marks: readonly SourceMark[],
): DatasetFormat {
  if (format !== undefined) return format
  const endings = new Set(marks.flatMap(({ files }) => files.map(({ path }) => endingOf(path))))
  const formats = new Set([...endings].map((ending) => ENDINGS[ending]))
  const [first] = formats
  if (formats.size === 1 && first !== undefined) return first
  throw new GridError(
    'usage',
    `expected files of one known ending (${Object.keys(ENDINGS).join(' ')}), ` +
      `got ${[...endings].slice(0, 8).join(', ') || 'no files'} in ${paths.join(', ')}; name the format with --format`,
  )
}

/** @throws GridError 'usage', 'dataset-unreadable' */
export async function openReader(parts: ReaderParts): Promise<SampleReader> {
  const { marks, options } = parts
  const bytes = { train: bytesOf(marks.train), validation: bytesOf(marks.validation) }
  const format = formatOf([], options, marks.train)
  switch (format) {
    case 'csv':
      return table(await CsvSource.open(pathsOf(marks), bytes, options.csv), parts)
    case 'jsonl':
      return table(await JsonLinesSource.open(pathsOf(marks), bytes), parts)
    case 'npy':
    case 'npz':
    case 'idx':
      return table(
        await ArraysSource.open(pathsOf(marks), bytes, { format, ...wantedOf(options), ...channelsOf(options) }),
        parts,
      )
    case 'parquet':
      return table(await ParquetSource.open(pathsOf(marks), bytes, wantedOf(options).wanted), parts)
    case 'tfrecord':
      return table(await TfRecordSource.open(pathsOf(marks), bytes), parts)
    case 'images':
      return ImageReader.open(marks, bytes, { options: options.images, seed: parts.seed, state: parts.state })
    case 'text':
      throw new Error('internal: a text has no samples before a job names its context')
    default:
      return format satisfies never
  }
}

/** @throws GridError 'usage' without a target */
function table(source: TableSource, { options, state }: ReaderParts): Promise<SampleReader> {
  const { target, ...rest } = options.table
  if (target !== undefined) return TableReader.open(source, { ...rest, target }, state)
  throw new GridError(
    'usage',
    `expected --class COLUMN, --values COLUMNS or --labels COLUMNS, got none; ` +
      `the columns are ${source.columns.slice(0, 30).join(', ')}`,
  )
}

/** The columns that a table is read for; all where a job does not say which are inputs. */
function wantedOf({ table: { inputs, target } }: ImportOptions): { readonly wanted?: readonly string[] } {
  return inputs === undefined ? {} : { wanted: [...inputs, ...(target?.columns ?? [])] }
}

function channelsOf({ channels }: ImportOptions): Pick<ImportOptions, 'channels'> {
  return channels === undefined ? {} : { channels }
}

function pathsOf(marks: ReaderParts['marks']): PartFiles {
  const paths = (part: readonly SourceMark[]): string[] => part.flatMap(({ files }) => files.map(({ path }) => path))
  return { train: paths(marks.train), validation: paths(marks.validation) }
}

function bytesOf(marks: readonly SourceMark[]): number {
  return marks.reduce((sum, { files }) => sum + files.reduce((part, { bytes }) => part + bytes, 0), 0)
}

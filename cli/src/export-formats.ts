// The formats that a trained model is exported in, and what of them is written where.
import { copyFile, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { basename, extname, resolve } from 'node:path'
import { readModelFile } from '@starling-grid/model'
import { describeError, GridError } from '@starling-grid/protocol'
import { Option } from 'commander'

/** Format → ending of its file. */
const ENDINGS = { safetensors: '.safetensors', 'pytorch-script': '.py', onnx: '.onnx' } as const
/** Folders of language models. */
export const FOLDER_FORMATS = ['peft', 'merged'] as const
export type FolderFormat = (typeof FOLDER_FORMATS)[number]
export type ExportFormat = keyof typeof ENDINGS
/** Those of other programs. */
export type ForeignFormat = Exclude<ExportFormat, 'safetensors'>

/** What this user alone may read of a file. */
const OWN_FILE = 0o600

export interface ConvertOptions {
  /** where the model is written */
  readonly file: string
  readonly format: ForeignFormat
  /** of the model, in messages */
  readonly name: string
}

export interface WrittenModel {
  readonly file: string
  readonly bytes: number
  /** file of the parameters, where they lie beside */
  readonly weights?: string
}

const ABOUT =
  'pytorch-script: a program, with its parameters beside it; onnx: of opset 20; of tuned language models a folder: ' +
  'peft, the adapters alone; merged, the whole model'

/** With the format that is meant where none is named. */
export function formatOption(formats: readonly [ExportFormat, ...(ExportFormat | FolderFormat)[]]): Option {
  return new Option('--format <format>', ABOUT).choices(formats).default(formats[0])
}

/** The name with the ending of a format in place of its own. */
export function withEnding(name: string, format: ExportFormat): string {
  const ending = extname(name)
  return (Object.values(ENDINGS).some((one) => one === ending) ? name.slice(0, -ending.length) : name) + ENDINGS[format]
}

/**
 * The model of the safetensors file `from` in another format. A file is there when it is whole.
 * @throws GridError 'usage', 'model-invalid', 'version-corrupt', 'dataset-unreadable', 'folder-unwritable'
 */
export async function convertModel(from: string, { file, format, name }: ConvertOptions): Promise<WrittenModel> {
  if (format === 'pytorch-script' && extname(file) !== ENDINGS[format])
    throw new GridError('usage', `expected a name that ends in .py for a program, got ${file}; name another with --out`)
  const { onnxModel, pytorchProgram } = await import('@starling-grid/client') // with all that predicts
  const model = readModelFile(await read(from), name)
  if (format === 'onnx') return { file, bytes: await write(file, onnxModel(model)) }
  const weights = withEnding(file, 'safetensors')
  if (resolve(from) !== weights) await writing(weights, (unfinished) => copyFile(from, unfinished))
  const program = new TextEncoder().encode(pytorchProgram(model, basename(weights)))
  return { file, bytes: await write(file, program), weights }
}

/** For people. */
export function writtenLines({ file, bytes, weights }: WrittenModel): string[] {
  const beside = weights === undefined ? [] : [`${weights}  its parameters; keep it beside the program`]
  return [`${file}  ${bytes.toLocaleString('en-US')} bytes`, ...beside]
}

async function read(file: string): Promise<Uint8Array> {
  return readFile(file).catch((cause: unknown) => {
    throw new GridError(
      'dataset-unreadable',
      `expected a model file, got ${file} (${describeError(cause)}); name one that can be read`,
      { cause },
    )
  })
}

async function write(file: string, bytes: Uint8Array): Promise<number> {
  await writing(file, (unfinished) => writeFile(unfinished, bytes, { mode: OWN_FILE }))
  return bytes.byteLength
}

async function writing(file: string, write: (unfinished: string) => Promise<void>): Promise<void> {
  const unfinished = `${file}.unfinished`
  try {
    await write(unfinished)
    await rename(unfinished, file)
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected a file that can be written, got ${file} (${describeError(cause)}); name another with --out`,
      { cause },
    )
  } finally {
    await rm(unfinished, { force: true })
  }
}

// Folders of images, one folder for each class: PNG by pngjs, JPEG by jpeg-js. Files are read in an order that the seed
// mixes; sizes are checked in the header before anything is unpacked.
import { readFileSync } from 'node:fs'
import { basename, dirname, extname } from 'node:path'
import { describeError, epochOrder, GridError } from '@starling-grid/protocol'
import jpeg from 'jpeg-js'
import { PNG } from 'pngjs'
import type { SampleForm, TargetForm } from '../forms.ts'
import { datasetUnreadable, PIXEL_SCALE } from '../samples.ts'
import type { FileMark, SourceMark } from '../sources.ts'
import type { StoredClassNames } from './class-names.ts'
import type { ReadPlace, SampleReader, SampleRun, SplitPart } from './reader.ts'

export interface ImageOptions {
  /** absent: all images have the size of the first */
  readonly size?: { readonly width: number; readonly height: number }
  /** one channel instead of three */
  readonly grey: boolean
}

/** Unpacked, RGBA. */
interface Picture {
  readonly width: number
  readonly height: number
  readonly data: Uint8Array
}

export const IMAGE_ENDINGS = ['.png', '.jpg', '.jpeg']
/** Pixels of one image: 64 MB unpacked. */
const MAX_PIXELS = 16 * 2 ** 20
/** Bytes of one file: no packing of MAX_PIXELS is larger. */
const MAX_FILE_BYTES = 128 * 2 ** 20
/** Bytes of one run: a window takes it whole. */
const RUN_IMAGE_BYTES = 2 ** 20
const RGBA = 4
/** Luma of red, green and blue: ITU-R BT.601. */
const LUMA = [0.299, 0.587, 0.114] as const
const CURE = 'Correct or remove the file.'
const SCALE_CURE = 'All images of a dataset have the size of the first; use --size, to which all are scaled.'

/** @throws GridError 'dataset-unreadable' for a folder that is no class of the images that are there */
function requireKnown(found: readonly string[], classes: readonly string[]): void {
  const other = found.find((name) => !classes.includes(name))
  if (other === undefined) return
  throw new GridError(
    'dataset-unreadable',
    `expected folders of the classes ${classes.join(', ').slice(0, 200)}, got ${other}; name folders of these classes`,
  )
}

export class ImageReader implements SampleReader {
  readonly format = 'images'
  readonly inputs: SampleForm
  readonly bytes: Readonly<Record<SplitPart, number>>
  readonly #files: Readonly<Record<SplitPart, readonly FileMark[]>>
  /** images of other sizes are scaled */
  readonly #isScaled: boolean
  readonly #classes: readonly string[]
  readonly #numbers: ReadonlyMap<string, number>

  /** @throws GridError 'dataset-unreadable' */
  static async open(
    marks: Readonly<Record<SplitPart, readonly SourceMark[]>>,
    bytes: SampleReader['bytes'],
    { options, seed, state }: { readonly options: ImageOptions; readonly seed: number; readonly state?: unknown },
  ): Promise<ImageReader> {
    const files = { train: mixed(marks.train, seed), validation: mixed(marks.validation, seed) }
    const [first] = files.train
    if (first === undefined)
      throw new GridError('dataset-unreadable', 'expected PNG or JPEG images in folders, got none')
    const size = options.size ?? pictureOf(first.path)
    const found = [...new Set([...files.train, ...files.validation].map(classOf))].sort()
    const { names } = (state ?? { names: found }) as Pick<StoredClassNames, 'names'>
    requireKnown(found, names)
    const form = { options, classes: names }
    return new ImageReader(files, bytes, form, [options.grey ? 1 : 3, size.height, size.width])
  }

  private constructor(
    files: Readonly<Record<SplitPart, readonly FileMark[]>>,
    bytes: SampleReader['bytes'],
    { options, classes }: { readonly options: ImageOptions; readonly classes: readonly string[] },
    shape: readonly [number, number, number],
  ) {
    this.#files = files
    this.#isScaled = options.size !== undefined
    this.bytes = bytes
    this.inputs = { shape, inputType: 'U8', inputScale: PIXEL_SCALE }
    this.#classes = classes
    this.#numbers = new Map(this.#classes.map((name, i) => [name, i]))
  }

  targets(): TargetForm {
    return { kind: 'classes', size: this.#classes.length, names: this.#classes }
  }

  settle(): undefined {
    return undefined
  }

  state(): undefined {
    return undefined
  }

  async *read(part: SplitPart, from: ReadPlace): AsyncIterable<SampleRun> {
    const files = this.#files[part]
    const form = { shape: this.inputs.shape, isScaled: this.#isScaled, cure: SCALE_CURE }
    const elements = this.inputs.shape.reduce((product, size) => product * size, 1)
    const perRun = Math.max(1, Math.floor(RUN_IMAGE_BYTES / elements))
    for (let at = from.offset; at < files.length; at += perRun) {
      const run = files.slice(at, at + perRun)
      const x = new Uint8Array(run.length * elements)
      for (const [i, file] of run.entries()) copyImage(file.path, form, x.subarray(i * elements, (i + 1) * elements))
      yield {
        count: run.length,
        x,
        y: Int32Array.from(run, (file) => this.#numbers.get(classOf(file)) ?? 0),
        next: { file: 0, offset: at + run.length, row: 0 },
        dropped: 0,
        bytes: run.reduce((sum, { bytes }) => sum + bytes, 0),
      }
    }
  }
}

/** What images are made into. */
export interface ImageForm {
  /** (channels, height, width): one channel or three */
  readonly shape: readonly number[]
  /** images of other sizes are scaled */
  readonly isScaled: boolean
  /** what to do about another size */
  readonly cure: string
}

/**
 * (height, width, RGBA) → x (channels, height, width), each pixel the mean of those that it covers.
 * @throws GridError 'dataset-unreadable' naming the file
 */
export function copyImage(path: string, form: ImageForm, x: Uint8Array): void {
  const picture = pictureOf(path)
  const [channels = 0, height = 0, width = 0] = form.shape
  const isWhole = picture.width === width && picture.height === height
  if (!isWhole && !form.isScaled)
    throw datasetUnreadable(
      path,
      `expected ${width} × ${height} pixels, got ${picture.width} × ${picture.height}`,
      form.cure,
    )
  if (isWhole && channels === 3) copyColours(picture, x)
  else copyMeans(picture, form.shape, x)
}

/** One pixel each, as a mean of one pixel would be. */
function copyColours({ width, height, data }: Picture, x: Uint8Array): void {
  const pixels = width * height
  for (let pixel = 0, from = 0; pixel < pixels; pixel++, from += RGBA) {
    x[pixel] = data[from] ?? 0
    x[pixel + pixels] = data[from + 1] ?? 0
    x[pixel + 2 * pixels] = data[from + 2] ?? 0
  }
}

function copyMeans(picture: Picture, [channels, height = 0, width = 0]: readonly number[], x: Uint8Array): void {
  const colour = [0, 0, 0]
  for (let row = 0, at = 0; row < height; row++)
    for (let column = 0; column < width; column++, at++) {
      meanOf(picture, { row, column, height, width }, colour)
      if (channels === 1) x[at] = Math.round(LUMA.reduce((sum, part, c) => sum + part * (colour[c] ?? 0), 0))
      else for (let c = 0; c < 3; c++) x[c * height * width + at] = Math.round(colour[c] ?? 0)
    }
}

interface PixelPlace {
  readonly row: number
  readonly column: number
  readonly height: number
  readonly width: number
}

/** Mean colour of the pixels that a pixel of the scaled image covers; of a larger image the nearest one. */
function meanOf({ width, height, data }: Picture, place: PixelPlace, colour: number[]): void {
  const top = Math.floor((place.row * height) / place.height)
  const left = Math.floor((place.column * width) / place.width)
  const bottom = Math.max(top + 1, Math.floor(((place.row + 1) * height) / place.height))
  const right = Math.max(left + 1, Math.floor(((place.column + 1) * width) / place.width))
  colour.fill(0)
  for (let row = top; row < bottom; row++)
    for (let column = left; column < right; column++) {
      const at = RGBA * (row * width + column)
      for (let c = 0; c < 3; c++) colour[c] = (colour[c] ?? 0) + (data[at + c] ?? 0)
    }
  const count = (bottom - top) * (right - left)
  for (let c = 0; c < 3; c++) colour[c] = (colour[c] ?? 0) / count
}

function mixed(marks: readonly SourceMark[], seed: number): FileMark[] {
  const files = marks
    .flatMap((mark) => mark.files)
    .filter(({ path }) => IMAGE_ENDINGS.includes(extname(path).toLowerCase()))
  return Array.from(epochOrder(seed, 0, files.length), (i) => files[i]).filter((file) => file !== undefined)
}

function classOf({ path }: FileMark): string {
  return basename(dirname(path))
}

/**
 * Read at once: of small files another thread would take longer to be asked than to read.
 * @throws GridError 'dataset-unreadable' naming the file
 */
function pictureOf(path: string): Picture {
  try {
    const bytes = readFileSync(path)
    if (bytes.byteLength > MAX_FILE_BYTES)
      throw new Error(`it has ${bytes.byteLength} bytes, the limit is ${MAX_FILE_BYTES}`)
    return isPng(bytes) ? png(bytes) : jpegOf(bytes)
  } catch (cause) {
    throw datasetUnreadable(path, `is no image that can be read (${describeError(cause)})`, CURE, cause)
  }
}

function isPng(bytes: Buffer): boolean {
  return bytes.subarray(1, 4).toString('latin1') === 'PNG'
}

function png(bytes: Buffer): Picture {
  if (bytes.byteLength < 24) throw new Error('it ends within its header')
  const [width, height] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20)]
  if (width * height > MAX_PIXELS || width * height === 0)
    throw new Error(`it has ${width} × ${height} pixels, the limit is ${MAX_PIXELS} in all`)
  return PNG.sync.read(bytes)
}

function jpegOf(bytes: Buffer): Picture {
  return jpeg.decode(bytes, {
    useTArray: true,
    maxResolutionInMP: MAX_PIXELS / 1e6,
    maxMemoryUsageInMB: 256,
    formatAsRGBA: true,
  })
}

// A few samples of a dataset as text: numbers with the names of their columns, images as small pictures, tokens.
import { readSafetensors, type StoredTensor } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { NamedDataset } from './catalog.ts'

export interface Preview {
  readonly target: string
  /** lines */
  readonly sample: readonly string[]
}

/** Characters from dark to light. */
const SHADES = ' .:-=+*#%@'
/** Characters of a picture's line. */
const PICTURE_WIDTH = 32
const SHOWN_NUMBERS = 8
const SHOWN_TOKENS = 240

/** The first samples of the first shard, which is mixed. @throws GridError 'shard-corrupt' */
export async function previewOf(dataset: NamedDataset, blobs: BlobStore, count: number): Promise<Preview[]> {
  const [first] = dataset.train
  const bytes = first === undefined ? undefined : await blobs.get(first.sha256)
  if (first === undefined || bytes === undefined) return []
  const { tensors } = readSafetensors(bytes)
  const tokens = tensors.get('tokens')
  if (tokens !== undefined) return [{ target: '', sample: [textOf(dataset, tokens)] }]
  const [x, y] = [tensors.get('x'), tensors.get('y')]
  if (x === undefined || y === undefined) return []
  return Array.from({ length: Math.min(count, first.samples) }, (_, i) => ({
    target: targetOf(dataset, valuesOf(y, i)),
    sample: sampleOf(dataset, valuesOf(x, i)),
  }))
}

/** The values of one sample. */
function valuesOf({ dtype, shape, data }: StoredTensor, sample: number): number[] {
  const size = shape.slice(1).reduce((product, length) => product * length, 1)
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  const read = {
    U8: (i: number) => view.getUint8(i),
    I32: (i: number) => view.getInt32(4 * i, true),
    F32: (i: number) => view.getFloat32(4 * i, true),
  }[dtype as 'U8' | 'I32' | 'F32']
  return Array.from({ length: size }, (_, i) => read(sample * size + i))
}

function targetOf({ targets }: NamedDataset, values: readonly number[]): string {
  const nameOf = (i: number): string => targets.names?.[i] ?? String(i)
  if (targets.kind === 'classes') return nameOf(values[0] ?? 0)
  if (targets.kind === 'labels')
    return values.flatMap((value, i) => (value === 0 ? [] : [nameOf(i)])).join(', ') || 'no label'
  return values.map((value, i) => `${nameOf(i)} ${short(value)}`).join('  ')
}

function sampleOf({ inputs }: NamedDataset, values: readonly number[]): string[] {
  const [channels = 1, height = 1, width = 1] = inputs.shape
  if (inputs.shape.length === 3) return picture(values, { channels, height, width })
  const named = values
    .slice(0, SHOWN_NUMBERS)
    .map((value, i) => (inputs.inputNames === undefined ? short(value) : `${inputs.inputNames[i]} ${short(value)}`))
  return [named.join('  ') + (values.length > SHOWN_NUMBERS ? `  … ${values.length} in all` : '')]
}

interface ImageSize {
  readonly channels: number
  readonly height: number
  readonly width: number
}

/** Mean of the channels; a character is twice as high as wide. */
function picture(values: readonly number[], { channels, height, width }: ImageSize): string[] {
  const columns = Math.min(PICTURE_WIDTH, width)
  const rows = Math.max(1, Math.round((columns * height) / width / 2))
  const greatest = values.reduce((most, value) => Math.max(most, value), Number.MIN_VALUE)
  const at = (row: number, column: number): string => {
    const place = Math.floor((row * height) / rows) * width + Math.floor((column * width) / columns)
    let sum = 0
    for (let channel = 0; channel < channels; channel++) sum += values[channel * height * width + place] ?? 0
    const light = Math.max(0, sum / channels / greatest)
    return SHADES.charAt(Math.min(SHADES.length - 1, Math.floor(light * SHADES.length)))
  }
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (__, column) => at(row, column)).join(''),
  )
}

function textOf({ targets: { vocabulary, tokens: kind } }: NamedDataset, { dtype, data }: StoredTensor): string {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  const size = dtype === 'I32' ? 4 : 2
  const tokens = Array.from({ length: Math.min(SHOWN_TOKENS, data.byteLength / size) }, (_, i) =>
    size === 4 ? view.getInt32(4 * i, true) : view.getUint16(2 * i, true),
  )
  if (kind === 'bpe') return tokens.slice(0, SHOWN_NUMBERS * 4).join(' ')
  if (kind === 'bytes') return Buffer.from(tokens).toString('utf8')
  const characters = [...(vocabulary ?? '')]
  return tokens.map((token) => characters[token] ?? '').join('')
}

function short(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(4)
}

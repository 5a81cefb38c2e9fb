// Stored samples → what the model takes: cut, moved, mirrored, scaled, recoloured, normalised. All chance comes of one
// number of the sample, and all arithmetic is IEEE + − × ÷ in a fixed order: every machine computes the same bits.
import { randomWords } from '@starling-grid/model'
import { type DatasetManifest, elementsOf, storedElementsOf } from '@starling-grid/protocol'
import type { StoredValues } from './shards.ts'

/** Draws of augmentation, apart from those of dropout, which come of the same number. */
const AUGMENT_STREAM = 0x6175676d
const WORDS = 2 ** 32
/** Luma of red, green and blue: ITU-R BT.601. */
const LUMA = [0.299, 0.587, 0.114] as const

/** Where a sample comes from and goes to, each counted in whole samples. */
export interface SamplePlace {
  readonly stored: StoredValues
  readonly from: number
  readonly x: Float32Array
  readonly at: number
}

/** Which part of a stored image is taken: its first row and column, and whether it is mirrored. */
interface View {
  readonly row: number
  readonly column: number
  readonly mirrored: boolean
  readonly upsideDown: boolean
}

/** Factors around 1. */
interface Recolour {
  readonly brightness: number
  readonly contrast: number
  readonly saturation: number
}

/** What preparation depends on: of a dataset, or of a model that was trained on it. */
export type PreparedForm = Pick<
  DatasetManifest,
  'inputShape' | 'storedShape' | 'inputType' | 'inputScale' | 'normalize' | 'augment'
>

export class SamplePreparation {
  readonly #manifest: PreparedForm
  readonly #elements: number
  readonly #storedElements: number
  /** (channels, height, width); flat samples have one channel of one row */
  readonly #shape: readonly [number, number, number]
  readonly #storedShape: readonly [number, number, number]

  constructor(manifest: PreparedForm) {
    this.#manifest = manifest
    this.#elements = elementsOf(manifest)
    this.#storedElements = storedElementsOf(manifest)
    this.#shape = asImage(manifest.inputShape)
    this.#storedShape = asImage(manifest.storedShape ?? manifest.inputShape)
  }

  /** `key`: the sample's own number while it trains; undefined: no chance, and the middle of what is cut. */
  copy(place: SamplePlace, key: number | undefined): void {
    const { augment, normalize, inputScale } = this.#manifest
    const to = place.at * this.#elements
    const sample = place.x.subarray(to, to + this.#elements)
    if (augment === undefined) {
      const from = place.from * this.#storedElements
      for (let i = 0; i < sample.length; i++) sample[i] = (place.stored[from + i] ?? 0) * inputScale
    } else {
      const draw = key === undefined ? undefined : drawsOf(key)
      this.#cut(place, sample, this.#viewOf(draw))
      if (draw !== undefined && augment.color !== undefined) this.#recolour(sample, recolourOf(augment.color, draw))
    }
    if (normalize !== undefined) standardize(sample, normalize)
  }

  #viewOf(draw: Draw | undefined): View {
    const { crop, shift = 0, flip } = this.#manifest.augment ?? {}
    const [, height, width] = this.#shape
    const [, storedHeight, storedWidth] = this.#storedShape
    const [down, right] = crop === undefined ? [0, 0] : [storedHeight - height, storedWidth - width]
    if (draw === undefined)
      return { row: Math.floor(down / 2), column: Math.floor(right / 2), mirrored: false, upsideDown: false }
    const row = draw.below(down + 1) + draw.below(2 * shift + 1) - shift
    const column = draw.below(right + 1) + draw.below(2 * shift + 1) - shift
    const mirrored = draw.below(2) === 1 && (flip === 'horizontal' || flip === 'both')
    const upsideDown = draw.below(2) === 1 && (flip === 'vertical' || flip === 'both')
    return { row, column, mirrored, upsideDown }
  }

  #cut({ stored, from }: SamplePlace, sample: Float32Array, view: View): void {
    const [channels, height, width] = this.#shape
    const [, storedHeight, storedWidth] = this.#storedShape
    const { inputScale } = this.#manifest
    let at = 0
    for (let channel = 0; channel < channels; channel++) {
      const plane = from * this.#storedElements + channel * storedHeight * storedWidth
      for (let i = 0; i < height; i++) {
        const row = view.row + (view.upsideDown ? height - 1 - i : i)
        for (let j = 0; j < width; j++) {
          const column = view.column + (view.mirrored ? width - 1 - j : j)
          const isInside = row >= 0 && row < storedHeight && column >= 0 && column < storedWidth
          sample[at++] = isInside ? (stored[plane + row * storedWidth + column] ?? 0) * inputScale : 0
        }
      }
    }
  }

  /** As torchvision's ColorJitter without hue, always in this order. Bytes stay within 0…1. */
  #recolour(sample: Float32Array, { brightness, contrast, saturation }: Recolour): void {
    const [channels, height, width] = this.#shape
    const pixels = height * width
    const luma = new Float64Array(pixels)
    let sum = 0
    for (let p = 0; p < pixels; p++) {
      luma[p] = lumaOf(sample, p, { channels, pixels }) * brightness
      sum += luma[p] ?? 0
    }
    const mean = sum / pixels
    const isBounded = (this.#manifest.inputType ?? 'U8') === 'U8'
    for (let p = 0; p < pixels; p++) {
      const grey = ((luma[p] ?? 0) - mean) * contrast + mean
      for (let at = p; at < sample.length; at += pixels) {
        const value = ((sample[at] ?? 0) * brightness - mean) * contrast + mean
        const changed = channels === 3 ? grey + (value - grey) * saturation : value
        sample[at] = isBounded ? Math.min(1, Math.max(0, changed)) : changed
      }
    }
  }
}

function asImage(shape: readonly number[]): readonly [number, number, number] {
  const [channels = 1, height = 1, width = 1] = shape.length === 3 ? shape : []
  return [channels, height, width]
}

function lumaOf(
  sample: Float32Array,
  pixel: number,
  { channels, pixels }: { channels: number; pixels: number },
): number {
  if (channels !== 3) return sample[pixel] ?? 0
  return LUMA.reduce((sum, part, channel) => sum + part * (sample[channel * pixels + pixel] ?? 0), 0)
}

function standardize(sample: Float32Array, { mean, deviation }: NonNullable<DatasetManifest['normalize']>): void {
  const size = sample.length / mean.length
  for (let channel = 0; channel < mean.length; channel++) {
    const [centre, spread] = [mean[channel] ?? 0, deviation[channel] ?? 1]
    for (let i = channel * size; i < (channel + 1) * size; i++) sample[i] = ((sample[i] ?? 0) - centre) / spread
  }
}

/** Numbers that follow each other. */
interface Draw {
  /** a whole number below `count` */
  below(count: number): number
  /** from 0 to 1 */
  part(): number
}

function drawsOf(key: number): Draw {
  const words = randomWords(key >>> 0, AUGMENT_STREAM)
  let drawn = 0
  return { below: (count) => words(drawn++) % count, part: () => words(drawn++) / WORDS }
}

function recolourOf(strength: number, draw: Draw): Recolour {
  const factor = (): number => 1 + strength * (2 * draw.part() - 1)
  return { brightness: factor(), contrast: factor(), saturation: factor() }
}

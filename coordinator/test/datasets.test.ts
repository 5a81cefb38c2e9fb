import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { parseModelSpec } from '@starling-grid/model'
import {
  DatasetManifestSchema,
  int32Values,
  isGridError,
  parse,
  readSafetensors,
  type ShardRef,
} from '@starling-grid/protocol'
import type { BlobStore } from '../src/blobs/blob-store.ts'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { Catalog } from '../src/datasets/catalog.ts'
import { readDigits } from '../src/datasets/digits.ts'
import { readIdx } from '../src/datasets/idx.ts'
import { importDataset } from '../src/datasets/import.ts'
import { readMnistFolder } from '../src/datasets/mnist-folder.ts'
import type { ImportedDataset } from '../src/datasets/samples.ts'
import { storeDataset } from '../src/datasets/shards.ts'

let folder: string
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'starling-idx-'))
})
after(() => rm(folder, { recursive: true }))

test('every machine imports the same 9,000 digits to train on and 1,000 to validate with', async () => {
  const store = memoryBlobs()
  const manifest = await storeDataset(await readDigits(), store)
  parse(DatasetManifestSchema, manifest, 'the manifest')
  const [train, validation] = [await contents(store, manifest.train), await contents(store, manifest.validation)]
  assert.equal(train.labels.length, 9000)
  assert.equal(validation.labels.length, 1000)
  assert.equal(manifest.train[0]?.sha256, '9d471050f51089ab2fc32ffce211bf0a4589a3255e75bf1647aef59f46c11cc3')
  for (let digit = 0; digit < 10; digit++) {
    const [inTrain, inValidation] = [count(train.labels, digit), count(validation.labels, digit)]
    assert.ok(Math.abs(inTrain / 9 - inValidation) <= 1.2, `digit ${digit}: ${inTrain} and ${inValidation}`)
  }
})

test('every shard is a mixture of all classes, between 0.5 and 2 MB', async () => {
  const store = memoryBlobs()
  const { train } = await storeDataset(await readDigits(), store)
  for (const shard of train) {
    const { labels } = await contents(store, [shard])
    for (let digit = 0; digit < 10; digit++)
      assert.ok(count(labels, digit) > shard.samples / 20, `digit ${digit} in ${shard.sha256}`)
    assert.ok(shard.bytes > 0.5e6 && shard.bytes < 2e6)
  }
})

test('shards hold each sample once, with its own label', async () => {
  const store = memoryBlobs()
  // The one pixel of sample i is i, its label is i % 7.
  const numbered = {
    x: Uint8Array.from({ length: 250 }, (_, i) => i),
    y: Uint8Array.from({ length: 250 }, (_, i) => i % 7),
  }
  const dataset: ImportedDataset = {
    name: 'numbers',
    source: 'a test',
    inputShape: [1],
    classes: 7,
    inputScale: 1,
    train: numbered,
    validation: { x: new Uint8Array(0), y: new Uint8Array(0) },
  }
  const { train, validation } = await storeDataset(dataset, store)
  const { inputs, labels } = await contents(store, train)
  assert.deepEqual(
    [...inputs].sort((a, b) => a - b),
    [...numbered.x],
  )
  inputs.forEach((input, i) => assert.equal(labels[i], input % 7))
  assert.notDeepEqual(inputs, [...numbered.x])
  assert.deepEqual(validation, [])
})

for (const loss of ['mse', 'bce_with_logits'])
  test(`${loss} takes a class as one value for each output, so a model needs an output for each class`, async () => {
    const model = (out: number) =>
      parseModelSpec({
        input: [1, 28, 28],
        loss,
        layers: [{ type: 'flatten' }, { type: 'linear', name: 'head', out }],
      })
    assert.equal(
      (await importDataset({ source: 'digits' }, model(10), { blobs: memoryBlobs(), catalog: new Catalog(folder) }))
        .classes,
      10,
    )
    await assert.rejects(
      importDataset({ source: 'digits' }, model(11), { blobs: memoryBlobs(), catalog: new Catalog(folder) }),
      (error) => isGridError(error) && error.code === 'job-invalid' && error.message.includes('got [11]'),
    )
  })

test('another seed gives other shards, the same seed the same', async () => {
  const digits = await readDigits()
  const names = async (seed: number) =>
    (await storeDataset(digits, memoryBlobs(), { seed })).train.map(({ sha256 }) => sha256)
  assert.deepEqual(await names(1), await names(1))
  assert.notDeepEqual(await names(1), await names(2))
})

test('importing tells how far it is', async () => {
  const seen: string[] = []
  const watch = ({ stage, done, total }: { stage: string; done: number; total: number }) =>
    seen.push(`${stage} ${done}/${total}`)
  await storeDataset(await readDigits(watch), memoryBlobs(), { onProgress: watch })
  assert.equal(seen[0], 'reading files 1/10')
  assert.equal(seen.at(-1), 'writing shards 10000/10000')
})

test('a folder of IDX files is read, plain or compressed, with either spelling', async () => {
  const images = idx([2, 2, 3], [...Array(12).keys()])
  const path = await mkdtemp(join(folder, 'mnist-'))
  await writeFile(join(path, 'train-images-idx3-ubyte.gz'), gzipSync(images))
  await writeFile(join(path, 'train-labels.idx1-ubyte'), idx([2], [3, 4]))
  await writeFile(join(path, 't10k-images.idx3-ubyte.gz'), gzipSync(images))
  await writeFile(join(path, 't10k-labels-idx1-ubyte'), idx([2], [0, 5]))
  const { inputShape, classes, train, validation } = await readMnistFolder(path)
  assert.deepEqual({ inputShape, classes }, { inputShape: [1, 2, 3], classes: 6 })
  assert.deepEqual([...train.x], [...Array(12).keys()])
  assert.deepEqual([...train.y, ...validation.y], [3, 4, 0, 5])
})

test('a folder without the files is refused with the names that were looked for and found', async () => {
  const path = await mkdtemp(join(folder, 'empty-'))
  await writeFile(join(path, 'holiday.jpg'), '')
  await assert.rejects(
    readMnistFolder(path),
    refusal(/has no train-images-idx3-ubyte.*it has holiday\.jpg.*Name the folder/),
  )
  await assert.rejects(readMnistFolder(join(path, 'nowhere')), refusal(/nowhere: cannot be listed/))
})

test('labels that do not match the images are refused', async () => {
  const path = await mkdtemp(join(folder, 'mismatch-'))
  await writeFile(join(path, 'train-images-idx3-ubyte'), idx([2, 1, 1], [0, 0]))
  await writeFile(join(path, 'train-labels-idx1-ubyte'), idx([3], [0, 0, 0]))
  await assert.rejects(readMnistFolder(path), refusal(/train-labels-idx1-ubyte: holds 3 labels for 2 images/))
})

test('each defect of an IDX file is named', async () => {
  const whole = idx([2, 2], [1, 2, 3, 4])
  await refused('cannot be read', undefined)
  await refused('begins with nothing', Buffer.alloc(0))
  await refused(
    'begins with 89 50 4e 47; an IDX file of bytes in 2 dimensions begins with 00 00 08 02',
    Buffer.from('\x89PNG\r\n', 'latin1'),
  )
  await refused('begins with 00 00 08 01', idx([4], [1, 2, 3, 4]))
  await refused('ends within its header', whole.subarray(0, 9))
  await refused('declares 2 × 2 = 4 bytes, more than its 15 bytes can hold', whole.subarray(0, 15))
  await refused('declares 2 × 2 = 4 bytes and holds more', Buffer.concat([whole, Buffer.of(0)]))
  await refused('declares 2 × 2 = 4 bytes and ends after 3', gzipSync(whole.subarray(0, 15)))
  await refused('cannot be read', gzipSync(whole).subarray(0, 20))
})

test('a header that declares more than the file can hold is refused before anything is allocated', async () => {
  const before = process.memoryUsage().rss
  await refused('more than its', idx([0xffffffff, 0xffffffff], []))
  await refused('or than the limit', gzipSync(Buffer.concat([idx([2 ** 16, 2 ** 15], []), Buffer.alloc(4e6)])))
  assert.ok(process.memoryUsage().rss - before < 64 * 2 ** 20)
})

test('a compressed bomb is unpacked no further than its header declares', async () => {
  // 8 GB of zeros: gzip files may be laid end to end.
  const zeros = gzipSync(Buffer.alloc(20e6))
  const bomb = Buffer.concat([gzipSync(idx([2, 2], [])), ...Array.from({ length: 400 }, () => zeros)])
  const started = performance.now()
  await refused('declares 2 × 2 = 4 bytes and holds more', bomb)
  assert.ok(performance.now() - started < 1000, 'unpacking all of it takes 4 s')
})

function idx(shape: readonly number[], elements: readonly number[]): Buffer {
  const header = Buffer.alloc(4 + 4 * shape.length)
  header.set([0, 0, 8, shape.length])
  shape.forEach((length, i) => header.writeUInt32BE(length, 4 + 4 * i))
  return Buffer.concat([header, Buffer.from(elements)])
}

/** The bytes, as a file of two dimensions, are refused with this text and the file's name. */
async function refused(problem: string, bytes: Buffer | undefined): Promise<void> {
  const path = join(folder, 'defect')
  await rm(path, { force: true })
  if (bytes) await writeFile(path, bytes)
  await assert.rejects(readIdx(path, 2), (error) => {
    assert.ok(isGridError(error) && error.code === 'dataset-unreadable', String(error))
    assert.ok(error.message.startsWith(`${path}: `) && error.message.includes(problem), error.message)
    return true
  })
}

function refusal(pattern: RegExp) {
  return (error: unknown) => isGridError(error) && error.code === 'dataset-unreadable' && pattern.test(error.message)
}

async function contents(
  store: BlobStore,
  shards: readonly ShardRef[],
): Promise<{ inputs: number[]; labels: number[] }> {
  const [inputs, labels]: [number[], number[]] = [[], []]
  for (const { sha256, samples } of shards) {
    const { tensors } = readSafetensors((await store.get(sha256)) ?? new Uint8Array(0))
    const [x, y] = [tensors.get('x'), tensors.get('y')]
    assert.ok(x && y)
    assert.equal(x.shape[0], samples)
    for (const value of x.data) inputs.push(value)
    for (const value of int32Values(y)) labels.push(value)
  }
  return { inputs, labels }
}

function count(labels: readonly number[], label: number): number {
  return labels.filter((each) => each === label).length
}

// `starling dataset import` of IDX files: every type of the format, packed ones, an import that goes on after a kill,
// and files that are none.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { isGridError, readSafetensors, samplesIn } from '@starling-grid/protocol'
import { Catalog, type NamedDataset } from '../src/datasets/catalog.ts'
import { importNamed } from '../src/datasets/import-named.ts'
import type { ImportRequest } from '../src/datasets/import-request.ts'

const MNIST = fileURLToPath(new URL('../../../shared/data/mnist/', import.meta.url))
const WATCH = { now: () => '2026-01-01T00:00:00.000Z' }
const folder = await mkdtemp(join(tmpdir(), 'starling-idx-'))
after(() => rm(folder, { recursive: true }))

const catalogOf = () => new Catalog(join(folder, crypto.randomUUID()))

/** An IDX file: its type's number, its shape, and how one value is written. */
function idx(type: number, shape: readonly number[], write: (view: DataView, at: number, i: number) => number): Buffer {
  const count = shape.reduce((product, length) => product * length, 1)
  const header = Buffer.alloc(4 + 4 * shape.length)
  header.set([0, 0, type, shape.length])
  for (const [i, length] of shape.entries()) header.writeUInt32BE(length, 4 + 4 * i)
  const values = new DataView(new ArrayBuffer(8 * count))
  let at = 0
  for (let i = 0; i < count; i++) at += write(values, at, i)
  return Buffer.concat([header, new Uint8Array(values.buffer, 0, at)])
}

const bytes = (shape: readonly number[], value: (i: number) => number): Buffer =>
  idx(0x08, shape, (view, at, i) => {
    view.setUint8(at, value(i))
    return 1
  })

async function written(files: Readonly<Record<string, Uint8Array>>): Promise<string[]> {
  const place = await mkdtemp(join(folder, 'files-'))
  return Promise.all(
    Object.entries(files).map(async ([name, content]) => {
      await writeFile(join(place, name), content)
      return join(place, name)
    }),
  )
}

function requestOf(paths: readonly string[], column: string, validationShare = 0): ImportRequest {
  const table = { missing: 'error', target: { kind: 'classes', columns: [column] } } as const
  const options = { csv: { header: true }, images: { grey: false }, tokens: 'characters', table }
  return { name: 'made', paths, validationShare, seed: 3, options }
}

async function firstShard(catalog: Catalog, { train: [ref] }: NamedDataset) {
  assert.ok(ref)
  const shard = await (await catalog.blobs()).get(ref.sha256)
  assert.ok(shard)
  const { tensors } = readSafetensors(shard)
  const [x, y] = [tensors.get('x'), tensors.get('y')]
  assert.ok(x && y)
  return { x, y: [...new Int32Array(new Uint8Array(y.data).buffer)] }
}

const IMAGES = 40
const images = bytes([IMAGES, 4, 5], (i) => Math.floor(i / 20))
const labels = bytes([IMAGES], (i) => i % 3)

test('images and labels become samples, whether packed or not, and by either name', async () => {
  const found: unknown[] = []
  for (const [image, label, pack] of [
    ['train-images-idx3-ubyte', 'train-labels-idx1-ubyte', (file: Buffer) => file],
    ['train-images.idx3-ubyte.gz', 'train-labels.idx1-ubyte.gz', gzipSync],
    ['train-images.idx', 'train-labels.idx.gz', gzipSync],
  ] as const) {
    const catalog = catalogOf()
    const paths = await written({ [image]: pack(images), [label]: pack(labels) })
    const dataset = await importNamed(requestOf(paths, 'train-labels'), catalog, WATCH)
    assert.deepEqual(
      [dataset.inputs.shape, dataset.inputs.inputType, dataset.inputs.inputScale],
      [[1, 4, 5], 'U8', 1 / 255],
    )
    const { x, y } = await firstShard(catalog, dataset)
    assert.equal(y.length, IMAGES)
    // An image has its own number in each pixel, and its label is that number modulo 3.
    for (const [i, label] of y.entries()) assert.equal((x.data[20 * i] ?? 0) % 3, label)
    found.push(dataset.train)
  }
  assert.deepEqual(found[1], found[0])
  assert.deepEqual(found[2], found[0])
})

type NumberWriter = 'setInt8' | 'setInt16' | 'setInt32' | 'setFloat32' | 'setFloat64'

test('every type of the format is read, the largest byte first', async () => {
  const values = [-3, 0, 7]
  const types: Readonly<Record<number, readonly [bytes: number, name: NumberWriter]>> = {
    0x09: [1, 'setInt8'],
    0x0b: [2, 'setInt16'],
    0x0c: [4, 'setInt32'],
    0x0d: [4, 'setFloat32'],
    0x0e: [8, 'setFloat64'],
  }
  for (const [type, [size, write]] of Object.entries(types)) {
    const catalog = catalogOf()
    const file = idx(Number(type), [3], (view, at, i) => {
      view[write](at, values[i] ?? 0)
      return size
    })
    const paths = await written({ 'x.idx': file, 'y.idx': bytes([3], (i) => i) })
    const { x, y } = await firstShard(catalog, await importNamed(requestOf(paths, 'y'), catalog, WATCH))
    const read = new Float32Array(new Uint8Array(x.data).buffer)
    for (const [i, label] of y.entries()) assert.equal(read[i], values[label], `type ${type}`)
  }
})

test('an import of packed files that was killed goes on and ends as one that was not', async () => {
  const many = 4500
  const paths = await written({
    'x.idx.gz': gzipSync(
      bytes([many, 80, 100], (i) => (i * 31) % 251),
      { level: 1 },
    ),
    'y.idx.gz': gzipSync(bytes([many], (i) => i % 3)),
  })
  const request = requestOf(paths, 'y', 0.1)
  const whole = await importNamed(request, catalogOf(), WATCH)
  const catalog = catalogOf()
  const killed = new Error('killed')
  const onProgress = (done: number, total: number): void => {
    if (done > 0.9 * total) throw killed
  }
  await assert.rejects(importNamed(request, catalog, { ...WATCH, onProgress }), killed)
  assert.deepEqual(await importNamed(request, catalog, WATCH), whole)
})

test('a file that is none, ends too early or goes on too long is refused with its name', async () => {
  const refused = async (file: Uint8Array, pattern: RegExp): Promise<void> => {
    const paths = await written({ 'x.idx': file, 'y.idx': bytes([IMAGES], (i) => i % 3) })
    await assert.rejects(importNamed(requestOf(paths, 'y'), catalogOf(), WATCH), (error) => {
      assert.ok(isGridError(error) && error.code === 'dataset-unreadable', String(error))
      assert.match(error.message, pattern)
      return true
    })
  }
  await refused(Buffer.from('PK nothing'), /x\.idx: expected an IDX file, .*got 504b206e/)
  await refused(Buffer.from([80, 75, 8, 1, 0, 0, 0, 3, 1, 2, 3]), /expected an IDX file, .*got 504b0801/)
  await refused(Buffer.alloc(0), /x\.idx: expected an IDX file, .*got nothing/)
  await refused(Buffer.from([0, 0, 8, 3, 0, 0]), /x\.idx: ends within its header/)
  await refused(images.subarray(0, 300), /expected 816 bytes for its shape \(40, 4, 5\), got 300/)
  await refused(gzipSync(images.subarray(0, 300)), /ends before its last row/)
  await refused(gzipSync(Buffer.concat([images, images])), /goes on behind its last row/)
  await refused(gzipSync(images).subarray(0, 40), /cannot be read/)
  await refused(
    bytes([3, 2], (i) => i),
    /the same number of rows, got 3 in x and 40 in y/,
  )
  const huge = Buffer.from([0, 0, 8, 3, ...Array.from({ length: 12 }, () => 255)])
  await refused(huge, /more than any file has/)
})

test(
  "MNIST's own files become ten classes of digits",
  { skip: !existsSync(MNIST) && 'the reference data is not there' },
  async () => {
    const paths = ['t10k-images-idx3-ubyte.gz', 't10k-labels-idx1-ubyte.gz'].map((name) => join(MNIST, name))
    const dataset = await importNamed(requestOf(paths, 't10k-labels', 0.1), catalogOf(), WATCH)
    assert.deepEqual(dataset.inputs.shape, [1, 28, 28])
    assert.deepEqual(dataset.targets.names, ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
    assert.deepEqual([samplesIn(dataset.train), samplesIn(dataset.validation)], [9000, 1000])
  },
)

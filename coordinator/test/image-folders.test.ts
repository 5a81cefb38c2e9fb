// Folders of images and JSON lines as datasets of a name.
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { isGridError, readSafetensors, samplesIn } from '@starling-grid/protocol'
import jpeg from 'jpeg-js'
import { PNG } from 'pngjs'
import { Catalog, type NamedDataset } from '../src/datasets/catalog.ts'
import { importNamed } from '../src/datasets/import-named.ts'
import type { ImportOptions } from '../src/datasets/readers/open.ts'

const folder = await mkdtemp(join(tmpdir(), 'starling-images-'))
after(() => rm(folder, { recursive: true }))

interface Colour {
  readonly width: number
  readonly height: number
  readonly rgb: readonly number[]
}

function pixels({ width, height, rgb }: Colour): Buffer {
  return Buffer.from(Array.from({ length: width * height }, () => [...rgb, 255]).flat())
}

function png(colour: Colour): Buffer {
  const image = new PNG({ width: colour.width, height: colour.height })
  image.data = pixels(colour)
  return PNG.sync.write(image)
}

function jpegOf(colour: Colour): Buffer {
  return jpeg.encode({ width: colour.width, height: colour.height, data: pixels(colour) }, 100).data
}

async function folderOf(files: Readonly<Record<string, Buffer>>): Promise<string> {
  const root = join(folder, crypto.randomUUID())
  for (const [path, bytes] of Object.entries(files)) {
    await mkdir(join(root, path, '..'), { recursive: true })
    await writeFile(join(root, path), bytes)
  }
  return root
}

async function imported(path: string, options: Partial<ImportOptions> = {}) {
  const catalog = new Catalog(join(folder, crypto.randomUUID()))
  const request = {
    name: 'made',
    paths: [path],
    validationShare: 0.25,
    seed: 3,
    options: {
      csv: { header: true },
      images: { grey: false },
      tokens: 'bytes',
      table: { missing: 'error' },
      ...options,
    },
  } as const
  return { dataset: await importNamed(request, catalog, { now: () => '' }), catalog }
}

async function samplesOf(dataset: NamedDataset, catalog: Catalog) {
  const blobs = await catalog.blobs()
  const shards = [...dataset.train, ...dataset.validation]
  return Promise.all(
    shards.map(async ({ sha256 }) => {
      const { tensors } = readSafetensors((await blobs.get(sha256)) ?? new Uint8Array())
      const [x, y] = [tensors.get('x'), tensors.get('y')]
      assert.ok(x && y)
      return { x: [...x.data], y: [...new Int32Array(new Uint8Array(y.data).buffer)] }
    }),
  )
}

function refused(pattern: RegExp) {
  return (error: unknown) => {
    assert.ok(isGridError(error) && error.code === 'dataset-unreadable', String(error))
    assert.match(error.message, pattern)
    return true
  }
}

const RED: Colour = { width: 4, height: 3, rgb: [250, 10, 20] }
const BLUE: Colour = { width: 4, height: 3, rgb: [5, 10, 240] }

test('a folder for each class: channels first, names of folders, PNG and JPEG', async () => {
  const path = await folderOf({
    'red/a.png': png(RED),
    'red/b.jpg': jpegOf(RED),
    'blue/c.png': png(BLUE),
    'blue/d.PNG': png(BLUE),
  })
  const { dataset, catalog } = await imported(path)
  assert.deepEqual(dataset.inputs.shape, [3, 3, 4])
  assert.deepEqual(dataset.targets.names, ['blue', 'red'])
  assert.deepEqual([samplesIn(dataset.train), samplesIn(dataset.validation)], [3, 1])
  for (const { x, y } of await samplesOf(dataset, catalog))
    for (const [i, label] of y.entries()) {
      const image = x.slice(36 * i, 36 * (i + 1))
      const wanted = label === 1 ? RED.rgb : BLUE.rgb
      for (const [at, value] of image.entries()) assert.ok(Math.abs(value - (wanted[Math.floor(at / 12)] ?? 0)) <= 6)
    }
})

test('images are scaled to a size, and made grey', async () => {
  const path = await folderOf({ 'a/1.png': png(RED), 'b/2.png': png({ ...BLUE, width: 9, height: 8 }) })
  await assert.rejects(imported(path), refused(/expected \d × \d pixels, got .*--size/))
  const { dataset } = await imported(path, { images: { size: { width: 2, height: 2 }, grey: true } })
  assert.deepEqual(dataset.inputs.shape, [1, 2, 2])
  assert.equal(samplesIn(dataset.train) + samplesIn(dataset.validation), 2)
})

test('a damaged image is named, and one that declares too many pixels is not unpacked', async () => {
  const damaged = png(RED).subarray(0, 50)
  await assert.rejects(
    imported(await folderOf({ 'a/x.png': damaged })),
    refused(/a.x\.png: is no image that can be read/),
  )
  const bomb = png(RED)
  bomb.writeUInt32BE(60_000, 16)
  bomb.writeUInt32BE(60_000, 20)
  const before = process.memoryUsage().rss
  await assert.rejects(imported(await folderOf({ 'a/x.png': bomb })), refused(/60000 × 60000 pixels, the limit/))
  assert.ok(process.memoryUsage().rss - before < 64 * 2 ** 20)
})

test('JSON lines: fields are columns, and lists of numbers several of them', async () => {
  const path = join(folder, 'rows.jsonl')
  const table = { missing: 'error', target: { kind: 'classes', columns: ['kind'] } } as const
  await writeFile(
    path,
    Array.from({ length: 8 }, (_, i) => `{"kind":"k${i % 2}","at":[${i},[2,3]],"w":${i}}\n`).join(''),
  )
  const { dataset } = await imported(path, { table })
  assert.deepEqual(dataset.inputs.shape, [4])
  assert.deepEqual(dataset.targets.names, ['k0', 'k1'])
  await writeFile(path, '{"kind":"a","w":1}\n{"kind":"b","w":"two"}\n')
  await assert.rejects(
    imported(path, { table }),
    refused(/rows\.jsonl, line 2: expected a number in column w, got "two"/),
  )
  await writeFile(path, '{"kind":"a","w":1}\n{"kind"\n')
  await assert.rejects(imported(path, { table }), refused(/rows\.jsonl, line 2: is no JSON/))
})

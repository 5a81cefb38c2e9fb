// One table in each format that has rows gives the same samples and shards. An import goes on after a kill, and a
// damaged file gets a clear error.
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { isGridError, readSafetensors, samplesIn } from '@starling-grid/protocol'
import { Catalog, type NamedDataset } from '../src/datasets/catalog.ts'
import { importNamed } from '../src/datasets/import-named.ts'
import type { ImportRequest } from '../src/datasets/import-request.ts'
import { crc32c } from '../src/datasets/readers/crc32c.ts'
import type { ImportOptions } from '../src/datasets/readers/open.ts'
import { floats, framed, type NpyArray, npy, npz, parquet, texts, tfRecord, whole } from './table-writers.ts'

const folder = await mkdtemp(join(tmpdir(), 'starling-tables-'))
after(() => rm(folder, { recursive: true }))
/** bytes; less than the table of an import that is killed has, more than a reader gives at once */
const SMALL_WINDOW = 2 * 2 ** 20
const WATCH = { now: () => '2026-01-01T00:00:00.000Z' }

/** Columns of the same length: numbers, lists of numbers, texts. */
interface Table {
  readonly age: readonly number[]
  /** lists of `width` */
  readonly pulse: readonly (readonly number[])[]
  readonly kind: readonly string[]
  readonly next: readonly (readonly number[])[]
  readonly tags: readonly (readonly number[])[]
}

function tableOf(rows: number, width: number): Table {
  const each = <T>(value: (row: number) => T): T[] => Array.from({ length: rows }, (_, row) => value(row))
  return {
    age: each((row) => row % 90),
    pulse: each((row) => Array.from({ length: width }, (_, i) => ((row * 7 + i * 3) % 64) / 4)),
    kind: each((row) => ['rose', 'lily', 'aster'][row % 3] ?? ''),
    next: each((row) => [row / 8, 1 - row]),
    tags: each((row) => [row % 2, (row >> 1) % 2, (row >> 2) % 2]),
  }
}

/** Files of a table: their endings and contents. */
type Write = (table: Table) => Promise<ReadonlyMap<string, Uint8Array>>

function arraysOf({ age, pulse, kind, next, tags }: Table): Record<string, NpyArray> {
  const rows = age.length
  return {
    age: whole(age, [rows]),
    pulse: floats(pulse.flat(), [rows, pulse[0]?.length ?? 0]),
    kind: texts(kind),
    next: floats(next.flat(), [rows, 2]),
    tags: whole(tags.flat(), [rows, 3]),
  }
}

function linesOf(table: Table): string {
  const { age, pulse, kind, next, tags } = table
  const row = (i: number) => ({ age: age[i], pulse: pulse[i], kind: kind[i], next: next[i], tags: tags[i] })
  return age.map((_, i) => `${JSON.stringify(row(i))}\n`).join('')
}

const FORMATS: Readonly<Record<string, Write>> = {
  'JSON lines': async (table) => new Map([['table.jsonl', Buffer.from(linesOf(table))]]),
  'NPZ, packed': async (table) => new Map([['table.npz', npz(arraysOf(table), 6)]]),
  'NPZ, not packed': async (table) => new Map([['table.npz', npz(arraysOf(table), 0)]]),
  'NPY files': async (table) =>
    new Map(Object.entries(arraysOf(table)).map(([name, array]) => [`${name}.npy`, npy(array)])),
  Parquet: async (table) => new Map([['table.parquet', parquet({ ...table }, 1500)]]),
  TFRecord: async (table) => new Map([['table.tfrecord', tfRecord({ ...table })]]),
}

async function written(files: ReadonlyMap<string, Uint8Array>): Promise<string[]> {
  const place = await mkdtemp(join(folder, 'files-'))
  const paths: string[] = []
  for (const [name, bytes] of files) {
    paths.push(join(place, name))
    await writeFile(join(place, name), bytes)
  }
  return paths
}

type Target = NonNullable<ImportOptions['table']['target']>
const CLASS = { kind: 'classes', columns: ['kind'] } as const

function requestOf(
  paths: readonly string[],
  target: Target = CLASS,
  more: Partial<ImportOptions> = {},
  inputs: readonly string[] | null = ['age', 'pulse'],
): ImportRequest {
  return {
    name: 'made',
    paths,
    validationShare: 0.1,
    seed: 3,
    options: {
      csv: { header: true },
      images: { grey: false },
      tokens: 'characters',
      table: { missing: 'error', target, ...(inputs === null ? {} : { inputs }) },
      ...more,
    },
  }
}

const catalogOf = () => new Catalog(join(folder, crypto.randomUUID()))

async function unreadable(importing: Promise<unknown>, pattern: RegExp): Promise<void> {
  await assert.rejects(importing, (error) => {
    assert.ok(isGridError(error) && error.code === 'dataset-unreadable', String(error))
    assert.match(error.message, pattern)
    return true
  })
}

/** x and y of the first shard. */
async function first(catalog: Catalog, { train }: NamedDataset) {
  return contents(catalog, train[0])
}

async function contents(catalog: Catalog, ref: NamedDataset['train'][number] | undefined) {
  assert.ok(ref)
  const bytes = await (await catalog.blobs()).get(ref.sha256)
  assert.ok(bytes)
  const { tensors } = readSafetensors(bytes)
  const [x, y] = [tensors.get('x'), tensors.get('y')]
  assert.ok(x && y)
  return { x, y }
}

/** Each sample of tableOf has the class that its age says. */
async function requireClasses(catalog: Catalog, { train, validation, targets: { names } }: NamedDataset) {
  assert.deepEqual(names, ['aster', 'lily', 'rose'])
  for (const ref of [...train, ...validation]) {
    const { x, y } = await contents(catalog, ref)
    const values = new Float32Array(new Uint8Array(x.data).buffer)
    const classes = new Int32Array(new Uint8Array(y.data).buffer)
    const width = values.length / classes.length
    for (const [i, found] of classes.entries()) assert.equal(found, 2 - ((values[i * width] ?? 0) % 3))
  }
}

const small = tableOf(200, 5)
const plain = await written((await FORMATS['JSON lines']?.(small)) ?? new Map())
const targets: readonly Target[] = [CLASS, { kind: 'values', columns: ['next'] }, { kind: 'labels', columns: ['tags'] }]
const wanted = await Promise.all(targets.map((target) => importNamed(requestOf(plain, target), catalogOf(), WATCH)))

for (const [name, write] of Object.entries(FORMATS)) {
  test(`${name}: classes, values of several columns and labels become the shards that JSON lines give`, async () => {
    const paths = await written(await write(small))
    for (const [i, target] of targets.entries()) {
      const dataset = await importNamed(requestOf(paths, target), catalogOf(), WATCH)
      assert.deepEqual(dataset.train, wanted[i]?.train)
      assert.deepEqual(dataset.validation, wanted[i]?.validation)
      assert.deepEqual(dataset.targets, wanted[i]?.targets)
      assert.deepEqual(dataset.statistics, wanted[i]?.statistics)
    }
  })

  test(`${name}: an import that was killed goes on and ends as one that was not`, async () => {
    const paths = await written(await write(tableOf(450, 1600)))
    const request = requestOf(paths)
    const watch = { ...WATCH, windowBytes: SMALL_WINDOW }
    const whole = await importNamed(request, catalogOf(), watch)
    const catalog = catalogOf()
    const killed = new Error('killed')
    const onProgress = (done: number, total: number): void => {
      if (done > 0.97 * total) throw killed
    }
    await assert.rejects(importNamed(request, catalog, { ...watch, onProgress }), killed)
    const state = JSON.parse(await readFile(join(catalog.folder, 'made.importing'), 'utf8')) as { windows: number }
    assert.ok(state.windows > 0, 'a window was complete')
    assert.deepEqual(await importNamed(request, catalog, watch), whole)
    await requireClasses(catalog, whole)
  })

  test(`${name}: a file that ends too early is refused with its name`, async () => {
    const files = await write(small)
    const [[damaged = '', bytes = new Uint8Array()] = []] = files
    for (const share of [0, 0.3, 0.9]) {
      const paths = await written(new Map([...files, [damaged, bytes.subarray(0, Math.floor(share * bytes.length))]]))
      await assert.rejects(importNamed(requestOf(paths), catalogOf(), WATCH), (error) => {
        assert.ok(isGridError(error) && ['dataset-unreadable', 'usage'].includes(error.code), String(error))
        return true
      })
    }
  })
}

test('two files of arrays are parts of one table', async () => {
  const parts = [tableOf(20, 2), tableOf(30, 2)].map((table) => npz(arraysOf(table)))
  const paths = await written(new Map(parts.map((bytes, i) => [`part-${i}.npz`, bytes])))
  const dataset = await importNamed(requestOf(paths), catalogOf(), WATCH)
  assert.equal(samplesIn(dataset.train) + samplesIn(dataset.validation), 50)
})

/** Made by NumPy 2.4: numpy.savez_compressed of x <f8 (3, 2), h <f2, big >i4, long <i8, flag bool, kind <U4, raw S2. */
const NUMPY_FILE =
  'UEsDBC0AAAAIAAAAIQCOE9Q0//////////8FABQAeC5ucHkBABAAsAAAAAAAAABXAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loG6TZqGuo6Ce' +
  'll9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GsY6CkaaOgq1CmQDLgYU8MEeynCAUBxQWgBKizgAAFBLAwQtAAAACAAAACEAz4nFA///////////' +
  'BQAUAGgubnB5AQAQAIYAAAAAAAAASgAAAAAAAACb7BfqGxDJyFDGUK2eklqcXKRupaBuk2akrqOgnpZfVFKUmBefX5SSChJ3S8wpTgWKF2ckFqQC' +
  '+RrGOpo6CrUKFAAuBguGA4wMAFBLAwQtAAAACAAAACEATMgfgf//////////BwAUAGJpZy5ucHkBABAAjAAAAAAAAABPAAAAAAAAAJvsF+obEMnI' +
  'UMZQrZ6SWpxcpG6loG6XaaKuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GsY6mjoKtQoUAC4GBgbG/////wNSOgBQSwMELQAAAAgAAAAh' +
  'ALyRVY7//////////wgAFABsb25nLm5weQEAEACYAAAAAAAAAE0AAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpNpoa6joJ6WX1RSlJgXn1+U' +
  'kgoSd0vMKU4FihdnJBakAvkaxjqaOgq1ChQALkYGCGCC0sxQGgBQSwMELQAAAAgAAAAhABaTjLv//////////wgAFABmbGFnLm5weQEAEACDAAAA' +
  'AAAAAEcAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgXpNkqK6joJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkaxjqaOgq1ChQALkYGRgBQ' +
  'SwMELQAAAAgAAAAhAG5FmqD//////////wgAFABraW5kLm5weQEAEACwAAAAAAAAAFsAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbhNqoq6j' +
  'oJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkaxjqaOgq1ChQAriIGBoZ8IC4G4lQgzgHiTChdCcRPGFABAFBLAwQtAAAACAAAACEAj8x3Qv//' +
  '////////BwAUAHJhdy5ucHkBABAAhgAAAAAAAABKAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loF4TbKSuo6Cell9UUpSYF59flJIKEndLzClO' +
  'BYoXZyQWpAL5GsY6mjoKtQoUAK5EhqTkFAYAUEsBAi0DLQAAAAgAAAAhAI4T1DRXAAAAsAAAAAUAAAAAAAAAAAAAAIABAAAAAHgubnB5UEsBAi0D' +
  'LQAAAAgAAAAhAM+JxQNKAAAAhgAAAAUAAAAAAAAAAAAAAIABjgAAAGgubnB5UEsBAi0DLQAAAAgAAAAhAEzIH4FPAAAAjAAAAAcAAAAAAAAAAAAA' +
  'AIABDwEAAGJpZy5ucHlQSwECLQMtAAAACAAAACEAvJFVjk0AAACYAAAACAAAAAAAAAAAAAAAgAGXAQAAbG9uZy5ucHlQSwECLQMtAAAACAAAACEA' +
  'FpOMu0cAAACDAAAACAAAAAAAAAAAAAAAgAEeAgAAZmxhZy5ucHlQSwECLQMtAAAACAAAACEAbkWaoFsAAACwAAAACAAAAAAAAAAAAAAAgAGfAgAA' +
  'a2luZC5ucHlQSwECLQMtAAAACAAAACEAj8x3QkoAAACGAAAABwAAAAAAAAAAAAAAgAE0AwAAcmF3Lm5weVBLBQYAAAAABwAHAHIBAAC3AwAAAAA='

test("NumPy's own files are read: doubles, halves, big-endian and long numbers, booleans, texts, bytes", async () => {
  const paths = await written(new Map([['numpy.npz', Buffer.from(NUMPY_FILE, 'base64')]]))
  const take = async (target: Target) => {
    const catalog = catalogOf()
    const inputs = ['x', 'h', 'big', 'long', 'flag']
    const request = { ...requestOf(paths, target, {}, inputs), validationShare: 0 }
    const dataset = await importNamed(request, catalog, WATCH)
    return { dataset, ...(await first(catalog, dataset)) }
  }
  const { dataset, x } = await take({ kind: 'classes', columns: ['kind'] })
  assert.deepEqual(dataset.targets.names, ['lily', 'rose', 'ä'])
  const rows = Array.from({ length: 3 }, (_, row) => [
    ...new Float32Array(new Uint8Array(x.data).buffer, 24 * row, 6),
  ]).sort(([a = 0], [b = 0]) => a - b)
  assert.deepEqual(rows, [
    [0, 1, 0.5, 1, 1, 1],
    [2, 3, -2, -2, 2, 0],
    [4, 5, 2 ** -24, 300, 3, 1],
  ])
  assert.deepEqual((await take({ kind: 'classes', columns: ['raw'] })).dataset.targets.names, ['a', 'bc', 'd'])
})

test('images in an array keep their form: channels last and first, grey ones, pixels as bytes', async () => {
  const pixels = (shape: readonly number[]): NpyArray => ({
    type: '|u1',
    shape,
    data: Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i % 251),
  })
  const target = { kind: 'classes', columns: ['y'] } as const
  const formOf = async (shape: readonly number[], more: Partial<ImportOptions> = {}) => {
    const files = new Map([['images.npz', npz({ x: pixels(shape), y: whole([0, 1, 0, 1], [4]) })]])
    const catalog = catalogOf()
    const request = { ...requestOf(await written(files), target, more, null), validationShare: 0 }
    const dataset = await importNamed(request, catalog, WATCH)
    return { ...dataset.inputs, x: (await first(catalog, dataset)).x }
  }
  const last = await formOf([4, 2, 5, 3])
  assert.deepEqual([last.shape, last.inputType, last.inputScale], [[3, 2, 5], 'U8', 1 / 255])
  assert.deepEqual(last.x.shape, [4, 3, 2, 5])
  const [a = 0, b, c] = last.x.data
  assert.deepEqual([b, c], [a + 3, a + 6], 'the first channel of one pixel after another')
  assert.deepEqual((await formOf([4, 3, 2, 5])).shape, [3, 2, 5])
  assert.deepEqual((await formOf([4, 6, 7])).shape, [1, 6, 7])
  assert.deepEqual((await formOf([4, 3, 7, 3], { channels: 'last' })).shape, [3, 3, 7])
  await assert.rejects(formOf([4, 3, 7, 3]), /say where they are with --channels first or --channels last/)
})

test('arrays that cannot be samples are refused with their names and what to do', async () => {
  const target = { kind: 'classes', columns: ['y'] } as const
  const y = whole([0, 1], [2])
  const take = async (files: Readonly<Record<string, Uint8Array>>) =>
    importNamed(requestOf(await written(new Map(Object.entries(files))), target, {}, null), catalogOf(), WATCH)
  const x = (description: string, bytes = 16) =>
    take({ 'x.npy': npy({ type: '', shape: [], data: new Uint8Array(bytes) }, description), 'y.npy': npy(y) })
  const described = (type: string, shape: string, order = 'False') =>
    `{'descr': '${type}', 'fortran_order': ${order}, 'shape': (${shape}), }`
  await unreadable(x(described('|O', '2,')), /x\.npy: expected numbers.*type \|O\. Python objects are not read/)
  await unreadable(x(described('<f4', '2, 2', 'True')), /expected rows one after another.*ascontiguousarray/)
  await unreadable(
    x("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
    /one type, got one of fields/,
  )
  await unreadable(x(described('<f4', '')), /expected rows of samples, got a single value/)
  await unreadable(x(described('<f4', '9000000000, 9000000000')), /a shape that no array has/)
  await unreadable(x(described('<f4', '2, 1000000')), /expected 8000\d+ bytes for its shape \(2, 1000000\), got \d+/)
  await unreadable(x(described('<f4', '3,'), 12), /the same number of rows, got 3 in x and 2 in y/)
  await unreadable(x('no header'), /a header that cannot be read \(no header/)
  await unreadable(take({ 'x.npy': Buffer.from('PK'), 'y.npy': npy(y) }), /is no NumPy array/)
  await unreadable(take({ 'x.npz': Buffer.from('nothing') }), /is no \.npz file that can be read/)
  const held = npz({ x: floats([1, Number.NaN], [2]), y }, 0)
  await unreadable(take({ 'x.npz': held }), /row 2: expected a number in column x, got nothing/)
  const damaged = npz({ x: floats([1, 2], [2]), y }, 0)
  const place = Buffer.from(damaged).indexOf(Buffer.from(Float32Array.of(2).buffer))
  damaged[place] = 9
  await unreadable(take({ 'x.npz': damaged }), /array x: has another checksum/)
})

test('the columns of a single array of NumPy are numbered', async () => {
  const paths = await written(new Map([['rows.npy', npy(floats([1, 2, 0, 3, 4, 1, 5, 6, 0], [3, 3]))]]))
  const dataset = await importNamed(requestOf(paths, { kind: 'classes', columns: ['3'] }, {}, null), catalogOf(), WATCH)
  assert.deepEqual(
    [dataset.inputs.inputNames, dataset.targets.names],
    [
      ['1', '2'],
      ['0', '1'],
    ],
  )
})

/** Made by pyarrow 25: a int64 with a null, b float, v list of double, kind string; two row groups. */
const ARROW_FILES: Readonly<Record<string, string>> = {
  snappy:
    'UEFSMRUEFSAVJEwVBBUAEgAAEDwBAAAAAAAAAAIAAAAAAAAAFQAVEhUWLBUGFRAVBhUGHAAAAAkgAgAAAAMDAQMCFQQVGBUcTBUGFQASAAAMLAAA' +
    'AD8AAKC/AABAQBUAFRQVGCwVBhUQFQYVBhwAAAAKJAIAAAAGAQIDJAAVBBVgFUhMFQwVABIAADAAAAUBBPA/BQcMAABAAAUBAAgNCAAQDQgkFEAA' +
    'AAAAAAAYQBUAFSIVJiwVDBUQFQYVBhwAAAARQAIAAAADKgIAAAAMAwMDiMYCFQQVIBUkTBUEFQASAAAQPAQAAAByb3NlBAAAAGxpbHkVABUSFRYs' +
    'FQYVEBUGFQYcAAAACSACAAAABgEBAwIVBBUQFRRMFQIVABIAAAgcBAAAAAAAAAAVABUSFRYsFQIVEBUGFQYcAAAACSACAAAAAgEBAgAVBBUIFQxM' +
    'FQIVABIAAAQMAAAAQRUAFRIVFiwVAhUQFQYVBhwAAAAJIAIAAAACAQECABUEFSAVJEwVBBUAEgAAEDwAAAAAAAAcQAAAAAAAACBAFQAVHhUiLBUE' +
    'FRAVBhUGHAAAAA84AgAAAAMCAgAAAAQDAQMCFQQVDBUQTBUCFQASAAAGFAIAAADDpBUAFRIVFiwVAhUQFQYVBhwAAAAJIAIAAAACAQECABUEGXw1' +
    'ABgGc2NoZW1hFQgAFQQlAhgBYQAVCCUCGAFiADUCGAF2FQIVBkw8AAAANQQYBGxpc3QVAgAVCiUCGAdlbGVtZW50ABUMJQIYBGtpbmQlAEwcAAAA' +
    'FggZLBlMJgAcFQQZNQAGEBkYAWEVAhYGFnQWfCZIJggpLBUEFQAVAgAVABUQFQIAPCkGGSYCBAAAACYAHBUIGTUABhAZGAFiFQIWBhZuFnYmvAEm' +
    'hAEpLBUEFQAVAgAVABUQFQIAPCkGGSYABgAAACYAHBUKGTUABhAZOAF2BGxpc3QHZWxlbWVudBUCFgwWxAEWsAEm3gIm+gEpLBUEFQAVAgAVABUQ' +
    'FQIAPCkmBgYZRgAAAAwAAAAmABwVDBk1AAYQGRgEa2luZBUCFgYWdBZ8JuoDJqoDKSwVBBUAFQIAFQAVEBUCADwWGBkGGSYABgAAABaaBBYGJggW' +
    'ngQAGUwmABwVBBk1AAYQGRgBYRUCFgIWZBZsJtYEJqYEKSwVBBUAFQIAFQAVEBUCADwpBhkmAAIAAAAmABwVCBk1AAYQGRgBYhUCFgIWXBZkJroF' +
    'JpIFKSwVBBUAFQIAFQAVEBUCADwpBhkmAAIAAAAmABwVChk1AAYQGTgBdgRsaXN0B2VsZW1lbnQVAhYEFoABFogBJrYGJvYFKSwVBBUAFQIAFQAV' +
    'EBUCADwpJgICGUYAAAAEAAAAJgAcFQwZNQAGEBkYBGtpbmQVAhYCFmAWaCaqByb+BiksFQQVABUCABUAFRAVAgA8FgQZBhkmAAIAAAAWoAMWAiam' +
    'BBbAAwAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjUuMC4xGUwcAAAcAAAcAAAcAAAAhwIAAFBBUjE=',
  gzip:
    'UEFSMRUEFSAVNEwVBBUAEgAAH4sIAAAAAAACA2NkgAAmKA0Aud32ABAAAAAVABUSFTosFQYVEBUGFQYcAAAAH4sIAAAAAAACA2NiYGBgZmZkZgIA' +
    'zrELWQkAAAAVBBUYFUBMFQYVABIAAB+LCAAAAAAAAgNjYGCwZ2BYsJ+BwcEBANJJc4cMAAAAFQAVFBU8LBUGFRAVBhUGHAAAAB+LCAAAAAAAAgNj' +
    'YmBgYGNkYlZhAACS5eFVCgAAABUEFWAVUEwVDBUAEgAAH4sIAAAAAAACA2NgAIEP9gwQ4AChOKC0AJQWgdISDgDQvRltMAAAABUAFSIVRiwVDBUQ' +
    'FQYVBhwAAAAfiwgAAAAAAAIDY2JgYGDWYgKSPMzMzB3HmADUEdqCEQAAABUEFSAVREwVBBUAEgAAH4sIAAAAAAACA2NhYGAoyi9OZQHSOZk5lQDq' +
    '23BqEAAAABUAFRIVOiwVBhUQFQYVBhwAAAAfiwgAAAAAAAIDY2JgYGBjZGRmAgA19uI7CQAAABUEFRAVLkwVAhUAEgAAH4sIAAAAAAACA2NhgAAA' +
    'k9Fo4QgAAAAVABUSFTosFQIVEBUGFQYcAAAAH4sIAAAAAAACA2NiYGBgYmRkYgAAmAB3OQkAAAAVBBUIFTBMFQIVABIAAB+LCAAAAAAAAgNjYGBw' +
    'BAAarp8gBAAAABUAFRIVOiwVAhUQFQYVBhwAAAAfiwgAAAAAAAIDY2JgYGBiZGRiAACYAHc5CQAAABUEFSAVPEwVBBUAEgAAH4sIAAAAAAACA2Ng' +
    'AAEZBzDFoOAAAAZM4+wQAAAAFQAVHhVCLBUEFRAVBhUGHAAAAB+LCAAAAAAAAgNjYmBgYGZiApIszIzMTAA6fWDvDwAAABUEFQwVNEwVAhUAEgAA' +
    'H4sIAAAAAAACA2NiYGA4vAQA1ONmzQYAAAAVABUSFTosFQIVEBUGFQYcAAAAH4sIAAAAAAACA2NiYGBgYmRkYgAAmAB3OQkAAAAVBBl8NQAYBnNj' +
    'aGVtYRUIABUEJQIYAWEAFQglAhgBYgA1AhgBdhUCFQZMPAAAADUEGARsaXN0FQIAFQolAhgHZWxlbWVudAAVDCUCGARraW5kJQBMHAAAABYIGSwZ' +
    'TCYAHBUEGTUABhAZGAFhFQQWBhZ0FrABJlgmCCksFQQVABUCABUAFRAVAgA8KQYZJgIEAAAAJgAcFQgZNQAGEBkYAWIVBBYGFm4WvgEmlAImuAEp' +
    'LBUEFQAVAgAVABUQFQIAPCkGGSYABgAAACYAHBUKGTUABhAZOAF2BGxpc3QHZWxlbWVudBUEFgwWxAEW2AEm4gMm9gIpLBUEFQAVAgAVABUQFQIA' +
    'PCkmBgYZRgAAAAwAAAAmABwVDBk1AAYQGRgEa2luZBUEFgYWdBbAASauBSbOBCksFQQVABUCABUAFRAVAgA8FhgZBhkmAAYAAAAWmgQWBiYIFoYG' +
    'ABlMJgAcFQQZNQAGEBkYAWEVBBYCFmQWqgEm2AYmjgYpLBUEFQAVAgAVABUQFQIAPCkGGSYAAgAAACYAHBUIGTUABhAZGAFiFQQWAhZcFqwBJoQI' +
    'JrgHKSwVBBUAFQIAFQAVEBUCADwpBhkmAAIAAAAmABwVChk1AAYQGTgBdgRsaXN0B2VsZW1lbnQVBBYEFoABFsABJrwJJuQIKSwVBBUAFQIAFQAV' +
    'EBUCADwpJgICGUYAAAAEAAAAJgAcFQwZNQAGEBkYBGtpbmQVBBYCFmAWsAEm9AompAopLBUEFQAVAgAVABUQFQIAPBYEGQYZJgACAAAAFqADFgIm' +
    'jgYWxgUAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI1LjAuMRlMHAAAHAAAHAAAHAAAAI0CAABQQVIx',
  zstd:
    'UEFSMRUEFSAVMkwVBBUAEgAAKLUv/SAQgQAAAQAAAAAAAAACAAAAAAAAABUGFQoVClwVBhUCFQYVEBUEFQASHAAAAAMDAQMCFQQVGBUqTBUGFQAS' +
    'AAAotS/9IAxhAAAAAAA/AACgvwAAQEAVBhUMFQxcFQYVABUGFRAVBBUAEhwAAAAGAQIDJAAVBBVgFVZMFQwVABIAACi1L/0gMBUBALgAAAAAAADw' +
    'PwBAAAgQFEAAAAAAAAAYQAQAIMtKXtAwBo4VBhUSFRJcFQwVABUGFRAVBBUEEhwAAAADKgwDAwOIxgIVBBUgFTJMFQQVABIAACi1L/0gEIEAAAQA' +
    'AAByb3NlBAAAAGxpbHkVBhUKFQpcFQYVABUGFRAVBBUAEhwAAAAGAQEDAhUEFRAVIkwVAhUAEgAAKLUv/SAIQQAABAAAAAAAAAAVBhUKFQpcFQIV' +
    'ABUCFRAVBBUAEhwAAAACAQECABUEFQgVGkwVAhUAEgAAKLUv/SAEIQAAAAAAQRUGFQoVClwVAhUAFQIVEBUEFQASHAAAAAIBAQIAFQQVIBUyTBUE' +
    'FQASAAAotS/9IBCBAAAAAAAAAAAcQAAAAAAAACBAFQYVDhUOXBUEFQAVAhUQFQQVBBIcAAAAAwIEAwEDAhUEFQwVHkwVAhUAEgAAKLUv/SAGMQAA' +
    'AgAAAMOkFQYVChUKXBUCFQAVAhUQFQQVABIcAAAAAgEBAgAVBBl8NQAYBnNjaGVtYRUIABUEJQIYAWEAFQglAhgBYgA1AhgBdhUCFQZMPAAAADUE' +
    'GARsaXN0FQIAFQolAhgHZWxlbWVudAAVDCUCGARraW5kJQBMHAAAABYIGSwZTCYAHBUEGTUABhAZGAFhFQwWBhZ2FogBJlYmCCksFQQVABUCABUA' +
    'FRAVAgA8KQYZJgIEAAAAJgAcFQgZNQAGEBkYAWIVDBYGFnAWggEm1gEmkAEpLBUEFQAVAgAVABUQFQIAPCkGGSYABgAAACYAHBUKGTUABhAZOAF2' +
    'BGxpc3QHZWxlbWVudBUMFgwWvgEWtAEmhAMmkgIpLBUEFQAVAgAVABUQFQIAPCkmBgYZRgAAAAwAAAAmABwVDBk1AAYQGRgEa2luZBUMFgYWdhaI' +
    'ASaUBCbGAyksFQQVABUCABUAFRAVAgA8FhgZBhkmAAYAAAAWmgQWBiYIFsYEABlMJgAcFQQZNQAGEBkYAWEVDBYCFmYWeCaMBSbOBCksFQQVABUC' +
    'ABUAFRAVAgA8KQYZJgACAAAAJgAcFQgZNQAGEBkYAWIVDBYCFl4WcCb8BSbGBSksFQQVABUCABUAFRAVAgA8KQYZJgACAAAAJgAcFQoZNQAGEBk4' +
    'AXYEbGlzdAdlbGVtZW50FQwWBBZ6FowBJoQHJrYGKSwVBBUAFQIAFQAVEBUCADwpJgICGUYAAAAEAAAAJgAcFQwZNQAGEBkYBGtpbmQVDBYCFmIW' +
    'dCb8BybCByksFQQVABUCABUAFRAVAgA8FgQZBhkmAAIAAAAWoAMWAibOBBboAwAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjUuMC4xGUwc' +
    'AAAcAAAcAAAcAAAAiQIAAFBBUjE=',
  brotli:
    'UEFSMRUEFSAVHkwVBBUAEgAAGw8AACQBAgSqEUoKkYYPFQAVEhUaLBUGFRAVBhUGHAAAAAsEgAIAAAADAwEDAgMVBBUYFSBMFQYVABIAAIsFgAAA' +
    'AD8AAKC/AABAQAMVABUUFRwsFQYVEBUGFQYcAAAAiwSAAgAAAAYBAgMkAAMVBBVgFThMFQwVABIAABsvAADEA05KIdwxmZAhB3QL1LJWIVLh74Mh' +
    '8TIVABUiFSosFQwVEBUGFQYcAAAACwiAAgAAAAMqAgAAAAwDAwOIxgIDFQQVIBUoTBUEFQASAACLB4AEAAAAcm9zZQQAAABsaWx5AxUAFRIVGiwV' +
    'BhUQFQYVBhwAAAALBIACAAAABgEBAwIDFQQVEBUWTBUCFQASAAAbBwAApAAIgpJAAhUAFRIVGiwVAhUQFQYVBhwAAAAbCAAAJAECBEKXAI5rFQQV' +
    'CBUQTBUCFQASAACLAYAAAABBAxUAFRIVGiwVAhUQFQYVBhwAAAAbCAAAJAECBEKXAI5rFQQVIBUkTBUEFQASAAAbDwAApAE4QIDkIpJQUogE+2sV' +
    'ABUeFR4sFQQVEBUGFQYcAAAAGw4AAATuZKkiSxwJpLcEFQQVDBUUTBUCFQASAACLAoACAAAAw6QDFQAVEhUaLBUCFRAVBhUGHAAAABsIAAAkAQIE' +
    'QpcAjmsVBBl8NQAYBnNjaGVtYRUIABUEJQIYAWEAFQglAhgBYgA1AhgBdhUCFQZMPAAAADUEGARsaXN0FQIAFQolAhgHZWxlbWVudAAVDCUCGARr' +
    'aW5kJQBMHAAAABYIGSwZTCYAHBUEGTUABhAZGAFhFQgWBhZ0FnomQiYIKSwVBBUAFQIAFQAVEBUCADwpBhkmAgQAAAAmABwVCBk1AAYQGRgBYhUI' +
    'FgYWbhZ+Jr4BJoIBKSwVBBUAFQIAFQAVEBUCADwpBhkmAAYAAAAmABwVChk1AAYQGTgBdgRsaXN0B2VsZW1lbnQVCBYMFsQBFqQBJtQCJoACKSwV' +
    'BBUAFQIAFQAVEBUCADwpJgYGGUYAAAAMAAAAJgAcFQwZNQAGEBkYBGtpbmQVCBYGFnQWhAEm6AMmpAMpLBUEFQAVAgAVABUQFQIAPBYYGQYZJgAG' +
    'AAAAFpoEFgYmCBagBAAZTCYAHBUEGTUABhAZGAFhFQgWAhZkFnIm2gQmqAQpLBUEFQAVAgAVABUQFQIAPCkGGSYAAgAAACYAHBUIGTUABhAZGAFi' +
    'FQgWAhZcFmwmxgUmmgUpLBUEFQAVAgAVABUQFQIAPCkGGSYAAgAAACYAHBUKGTUABhAZOAF2BGxpc3QHZWxlbWVudBUIFgQWgAEWhAEmxgYmhgYp' +
    'LBUEFQAVAgAVABUQFQIAPCkmAgIZRgAAAAQAAAAmABwVDBk1AAYQGRgEa2luZBUIFgIWYBZwJroHJooHKSwVBBUAFQIAFQAVEBUCADwWBBkGGSYA' +
    'AgAAABagAxYCJqgEFtIDACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNS4wLjEZTBwAABwAABwAABwAAACIAgAAUEFSMQ==',
}

for (const [codec, file] of Object.entries(ARROW_FILES))
  test(`what pyarrow wrote with ${codec} is read: nulls, long numbers, lists, texts`, async () => {
    const paths = await written(new Map([['arrow.parquet', Buffer.from(file, 'base64')]]))
    const catalog = catalogOf()
    const request = requestOf(paths, CLASS, { table: { missing: -7, target: CLASS } })
    const dataset = await importNamed({ ...request, validationShare: 0 }, catalog, WATCH)
    assert.deepEqual(dataset.targets.names, ['lily', 'rose', 'ä'])
    const { x, y } = await first(catalog, dataset)
    const values = new Float32Array(new Uint8Array(x.data).buffer)
    const classes = new Int32Array(new Uint8Array(y.data).buffer)
    const rows = Array.from(classes, (found, i) => [...values.subarray(4 * i, 4 * i + 4), found])
    assert.deepEqual(
      rows.sort(([a = 0], [b = 0]) => a - b),
      [
        [-7, 3, 5, 6, 1],
        [1, 0.5, 1, 2, 1],
        [2, -1.25, 3, 4, 0],
        [4, 8, 7, 8, 2],
      ],
    )
  })

test('a Parquet file whose sizes are not those of its bytes is refused before it is unpacked', async () => {
  const whole = parquet({ a: [1, 2, 3, 4], kind: ['x', 'y', 'x', 'y'] }, 4)
  const take = async (change: (bytes: Buffer) => Buffer) =>
    importNamed(
      requestOf(await written(new Map([['t.parquet', change(Buffer.from(whole))]])), CLASS, {}, ['a']),
      catalogOf(),
      WATCH,
    )
  const set = (at: number, value: number) => (bytes: Buffer) => {
    bytes[at < 0 ? bytes.length + at : at] = value
    return bytes
  }
  await unreadable(take(set(-1, 0)), /t\.parquet: is no Parquet file that can be read \(its end/)
  await unreadable(take(set(-5, 0x7f)), /its footer has \d+ bytes, the limit is/)
  await unreadable(
    take((bytes) => bytes.subarray(40)),
    /t\.parquet/,
  )
  for (let at = 4; at < whole.length - 8; at++)
    await take(set(at, (whole[at] ?? 0) ^ 0xff)).then(
      () => undefined,
      (error) => assert.ok(isGridError(error), `byte ${at}: ${error}`),
    )
})

test('a TFRecord says which record is damaged, too long or no example', async () => {
  const whole = tfRecord({ a: [1, 2, 3], kind: ['x', 'y', 'x'] })
  const take = async (bytes: Uint8Array) =>
    importNamed(requestOf(await written(new Map([['t.tfrecord', bytes]])), CLASS, {}, ['a']), catalogOf(), WATCH)
  const damaged = Buffer.from(whole)
  const second = whole.length / 3 + 20
  damaged[second] = (damaged[second] ?? 0) ^ 1
  await unreadable(take(damaged), /t\.tfrecord, record 2: has another checksum/)
  await unreadable(take(Buffer.concat([whole, Buffer.alloc(12)])), /record 4: expected a TFRecord, got a length with/)
  await unreadable(take(whole.subarray(0, -3)), /record 3: ends before its last byte/)
  await unreadable(take(framed(Buffer.from('nothing'))), /record 1: is no tf\.train\.Example/)
  await unreadable(take(new Uint8Array()), /holds no record/)
  const lacking = Buffer.concat([whole, tfRecord({ kind: ['y'] })])
  await unreadable(take(lacking), /record 4: expected a number in column a, got nothing/)
})

test('the checksum of TFRecord is the known CRC-32C', () => {
  assert.equal(crc32c(Buffer.from('123456789')), 0xe3069283)
  assert.equal(crc32c(Buffer.alloc(32)), 0x8a9136aa, 'RFC 3720, B.4')
})

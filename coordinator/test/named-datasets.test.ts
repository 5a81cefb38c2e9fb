// Datasets that are imported under a name: from files to the batches that volunteers make of them.
import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { gpt, parseModelSpec } from '@starling-grid/model'
import {
  DatasetManifestSchema,
  type ErrorCode,
  isGridError,
  jobId,
  parse,
  readSafetensors,
  samplesIn,
} from '@starling-grid/protocol'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { Catalog, type NamedDataset, shardsOf } from '../src/datasets/catalog.ts'
import { appendNamed, importNamed } from '../src/datasets/import-named.ts'
import type { ImportRequest } from '../src/datasets/import-request.ts'
import { importDataset } from '../src/datasets/import.ts'
import type { ImportOptions } from '../src/datasets/readers/open.ts'
import { Statistics } from '../src/datasets/statistics.ts'
import { jobsThatUse } from '../src/datasets/uses.ts'
import { openSqliteState } from '../src/journal/sqlite.ts'

const folder = await mkdtemp(join(tmpdir(), 'starling-named-'))
after(() => rm(folder, { recursive: true }))

const NOW = '2026-01-01T00:00:00.000Z'
const WATCH = { now: () => NOW }

function catalogOf(): Catalog {
  return new Catalog(join(folder, crypto.randomUUID()))
}

async function file(content: string | Uint8Array, ending = 'csv'): Promise<string> {
  const path = join(folder, `${crypto.randomUUID()}.${ending}`)
  await writeFile(path, content)
  return path
}

type Choice = Partial<ImportOptions['table']> & Partial<Omit<ImportOptions, 'table'>>

function requestOf(paths: readonly string[], choice: Choice = {}, more: Partial<ImportRequest> = {}): ImportRequest {
  const { format, csv = { header: true }, tokens = 'characters', ...table } = choice
  return {
    name: 'made',
    paths,
    validationShare: 0.2,
    seed: 1,
    options: {
      ...(format === undefined ? {} : { format }),
      csv,
      images: { grey: false },
      tokens,
      table: { missing: 'error', ...table },
    },
    ...more,
  }
}

async function importTable(content: string, choice: Choice, catalog = catalogOf()): Promise<NamedDataset> {
  return importNamed(requestOf([await file(content)], choice), catalog, WATCH)
}

const classes = (column: string) => ({ kind: 'classes', columns: [column] }) as const

/** x and y of all samples of a split. */
async function contents(catalog: Catalog, shards: NamedDataset['train']): Promise<{ x: number[]; y: number[] }> {
  const blobs = await catalog.blobs()
  const [x, y]: [number[], number[]] = [[], []]
  for (const { sha256 } of shards) {
    const { tensors } = readSafetensors((await blobs.get(sha256)) ?? new Uint8Array())
    const [inputs, targets] = [tensors.get('x'), tensors.get('y')]
    assert.ok(inputs && targets)
    const floats = (data: Uint8Array) => [...new Float32Array(new Uint8Array(data).buffer)]
    x.push(...(inputs.dtype === 'F32' ? floats(inputs.data) : inputs.data))
    if (targets.dtype === 'F32') y.push(...floats(targets.data))
    else y.push(...(targets.dtype === 'I32' ? new Int32Array(new Uint8Array(targets.data).buffer) : targets.data))
  }
  return { x, y }
}

function refused(code: ErrorCode, pattern: RegExp) {
  return (error: unknown) => {
    assert.ok(isGridError(error) && error.code === code, String(error))
    assert.match(error.message, pattern)
    return true
  }
}

test('a table with a column of classes: samples, split, statistics of the training samples, sorted names', async () => {
  const catalog = catalogOf()
  const rows = Array.from({ length: 100 }, (_, i) => `${i},${i * 2},${['rose', 'lily'][i % 2]}`)
  const dataset = await importTable(['a,b,kind', ...rows, ''].join('\n'), { target: classes('kind') }, catalog)
  assert.deepEqual(dataset.targets, { kind: 'classes', size: 2, names: ['lily', 'rose'] })
  assert.deepEqual(dataset.inputs, { shape: [2], inputType: 'F32', inputScale: 1, inputNames: ['a', 'b'] })
  assert.deepEqual([samplesIn(dataset.train), samplesIn(dataset.validation)], [80, 20])
  const train = await contents(catalog, dataset.train)
  const validation = await contents(catalog, dataset.validation)
  const first = [...train.x, ...validation.x].filter((_, i) => i % 2 === 0)
  assert.deepEqual(
    first.toSorted((a, b) => a - b),
    Array.from({ length: 100 }, (_, i) => i),
    'each row is there once',
  )
  for (const [i, label] of train.y.entries()) assert.equal(label, (train.x[2 * i] ?? 0) % 2 === 0 ? 1 : 0)
  const trained = train.x.filter((_, i) => i % 2 === 0)
  const mean = trained.reduce((sum, value) => sum + value, 0) / 80
  const deviation = Math.sqrt(trained.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 80)
  assert.ok(Math.abs((dataset.statistics?.mean[0] ?? 0) - mean) < 1e-4)
  assert.ok(Math.abs((dataset.statistics?.deviation[1] ?? 0) - 2 * deviation) < 1e-4)
  assert.deepEqual(
    dataset.counts?.reduce((sum, count) => sum + count),
    80,
  )
  assert.deepEqual(
    dataset.sources.map(({ files, bytes }) => [files, bytes > 500]),
    [[1, true]],
  )
})

test('whole numbers are classes by themselves, and other columns can be values or labels', async () => {
  const text = 'x,n,u,v\n1,3,0.5,1\n2,0,0.25,0\n3,3,-1e-3,1\n4,1,7,1\n'
  const catalog = catalogOf()
  const numbers = await importTable(text, { target: classes('n'), inputs: ['x'] })
  assert.deepEqual(numbers.targets.names, ['0', '1', '2', '3'])
  const values = await importTable(text, { target: { kind: 'values', columns: ['u', 'n'] }, inputs: ['x'] }, catalog)
  const read = await contents(catalog, values.train)
  for (const [i, x] of read.x.entries()) assert.equal(read.y[2 * i], Math.fround([0.5, 0.25, -1e-3, 7][x - 1] ?? 0))
  const labels = await importTable(text, { target: { kind: 'labels', columns: ['v'] }, inputs: ['x', 'u'] })
  assert.deepEqual(labels.targets, { kind: 'labels', size: 1, names: ['v'] })
})

test('what is wrong with a table is said with file and line', async () => {
  const wrong = (content: string, pattern: RegExp, choice: Choice = { target: classes('y') }) =>
    assert.rejects(importTable(content, choice), refused('dataset-unreadable', pattern))
  await wrong('x,y\n1,a\n2,b\nthree,a\n', /\.csv, line 4: expected a number in column x, got "three"/)
  await wrong('x,y\n1,a\n,b\n', /\.csv, line 3: expected a number in column x, got nothing.*--missing drop/)
  await wrong('x,y\n1,a\n2,"b\nc"\n3,a,9\n', /\.csv, line 5: expected 2 cells, got 3/)
  await wrong('x,y\n1,"a\n2,b\n', /\.csv, line 2: expected quotation marks around whole cells/)
  await wrong('x,x\n1,2\n', /different names in .*"x" twice/)
  await wrong('x,y\n', /expected rows of samples, got none/)
  await wrong('x,y\n1,0\n2,2\n', /line 3: expected 0 or 1 in column y/, { target: { kind: 'labels', columns: ['y'] } })
  await wrong('x,y\n1,a\n2,c\n', /line 3: expected one of the classes a, b, got "c"/, {
    target: classes('y'),
    classes: ['a', 'b'],
  })
  await assert.rejects(importTable('x,y\n1,2\n', { target: classes('z') }), refused('usage', /got "z"; it has x, y/))
  await assert.rejects(importTable('x,y\n1,2\n', {}), refused('usage', /--class COLUMN.*the columns are x, y/))
  await assert.rejects(
    importNamed(
      requestOf([await file(Uint8Array.of(120, 10, 0xff, 0xfe))], { target: classes('x') }),
      catalogOf(),
      WATCH,
    ),
    refused('dataset-unreadable', /is not text in UTF-8/),
  )
  await assert.rejects(
    importNamed(requestOf([join(folder, 'nowhere.csv')], { target: classes('x') }), catalogOf(), WATCH),
    refused('dataset-unreadable', /nowhere\.csv: cannot be read/),
  )
})

test('a row that does not end is refused before it fills memory', async () => {
  const endless = await file(`x,y\n"${'a'.repeat(40 * 2 ** 20)}`)
  await assert.rejects(
    importNamed(requestOf([endless], { target: classes('y') }), catalogOf(), WATCH),
    refused('dataset-unreadable', /expected a row of at most 16777216 bytes, got a longer one/),
  )
})

test('missing values are rows less, or a number', async () => {
  const text = 'x,y\n1,a\n,b\nNA,a\n4,b\n'
  const target = classes('y')
  const dropped = await importTable(text, { target, missing: 'drop' })
  assert.deepEqual([dropped.dropped, samplesIn(dropped.train) + samplesIn(dropped.validation)], [2, 2])
  const catalog = catalogOf()
  const filled = await importTable(text, { target, missing: -1 }, catalog)
  const { x } = await contents(catalog, [...filled.train, ...filled.validation])
  assert.deepEqual(
    x.toSorted((a, b) => a - b),
    [-1, -1, 1, 4],
  )
})

test('files without a header, of tabs, and of several parts with validation of its own', async () => {
  const parts = [await file('1\ta\n2\tb\n', 'tsv'), await file('3\ta\r\n4\tb', 'tsv')]
  const validation = await file('5\tb\n', 'tsv')
  const choice = { target: classes('2'), csv: { header: false } }
  const catalog = catalogOf()
  const request = requestOf(parts, choice, { validationPaths: [validation] })
  const dataset = await importNamed(request, catalog, WATCH)
  assert.deepEqual((await contents(catalog, dataset.train)).x.toSorted(), [1, 2, 3, 4])
  assert.deepEqual(await contents(catalog, dataset.validation), { x: [5], y: [1] })
})

/** 57,000 rows of 120 numbers: more than a window. */
const manyRows = ['y', ...Array.from({ length: 120 }, (_, i) => `c${i}`)]
  .join(',')
  .concat('\n', Array.from({ length: 57_000 }, (_, i) => `${i % 3}${`,${i % 10}`.repeat(120)}\n`).join(''))

test('an import that was killed goes on with the shards that are complete, and ends as one that was not', async () => {
  const path = await file(manyRows)
  const request = requestOf([path], { target: classes('y') })
  const whole = await importNamed(request, catalogOf(), WATCH)
  const catalog = catalogOf()
  const killed = new Error('killed')
  await assert.rejects(
    importNamed(request, catalog, {
      ...WATCH,
      onProgress: (done, total) => {
        if (done > 0.97 * total) throw killed
      },
    }),
    killed,
  )
  assert.deepEqual(await catalog.names(), [])
  const state = JSON.parse(await readFile(join(catalog.folder, 'made.importing'), 'utf8')) as { bytes: number }
  assert.ok(state.bytes > 0.5 * manyRows.length)
  let first: number | undefined
  const resumed = await importNamed(request, catalog, {
    ...WATCH,
    onProgress: (done) => {
      first ??= done
    },
  })
  assert.ok((first ?? 0) > state.bytes, 'what was complete is not read again')
  assert.deepEqual(resumed, whole)
  assert.deepEqual(await readdir(catalog.folder), ['made.json'])
})

test('another import under the name of one that was killed begins anew', async () => {
  const catalog = catalogOf()
  const stop = { ...WATCH, onProgress: () => assert.fail('killed') }
  await assert.rejects(importNamed(requestOf([await file('x,y\n1,a\n2,b\n')], { target: classes('y') }), catalog, stop))
  const dataset = await importTable('x,y\n1,a\n2,b\n3,c\n', { target: classes('y') }, catalog)
  assert.equal(dataset.targets.size, 3)
})

test('appended files are read as the first were: their samples train, behind shards that stay', async () => {
  const catalog = catalogOf()
  const rowsOf = (from: number, count: number) =>
    Array.from({ length: count }, (_, i) => `${from + i},${['rose', 'lily'][i % 2]}`)
  const table = async (rows: readonly string[]) => file(['a,kind', ...rows, ''].join('\n'))
  const before = await importNamed(
    requestOf([await table(rowsOf(0, 100))], { target: classes('kind') }),
    catalog,
    WATCH,
  )
  const paths = [await table(rowsOf(100, 50)), await table(['150,lily'])]
  const killed = new Error('killed')
  const onProgress = () => {
    throw killed
  }
  await assert.rejects(appendNamed({ name: 'made', paths }, catalog, { ...WATCH, onProgress }), killed)
  assert.deepEqual(await catalog.get('made'), before, 'not before all is there')
  const after = await appendNamed({ name: 'made', paths }, catalog, WATCH)
  assert.deepEqual(after.train.slice(0, before.train.length), before.train)
  assert.deepEqual(after.validation, before.validation)
  assert.deepEqual(after.targets, before.targets)
  assert.equal(samplesIn(after.train), samplesIn(before.train) + 51)
  assert.equal(after.sources.length, 3)
  const { x, y } = await contents(catalog, after.train.slice(before.train.length))
  assert.deepEqual(
    x.toSorted((a, b) => a - b),
    Array.from({ length: 51 }, (_, i) => 100 + i),
  )
  for (const [i, value] of x.entries()) assert.equal(y[i], value % 2 === 0 && value < 150 ? 1 : 0, 'the same classes')
  const all = await contents(catalog, after.train)
  const mean = all.x.reduce((sum, value) => sum + value, 0) / all.x.length
  assert.ok(Math.abs((after.statistics?.mean[0] ?? 0) - mean) < 1e-4, 'statistics are those of all')
  assert.deepEqual(
    after.counts,
    [0, 1].map((label) => all.y.filter((one) => one === label).length),
  )
  for (const [rows, problem] of [
    [['1,tulip'], /expected one of the classes lily, rose, got "tulip"/],
    [
      ['a,b,kind', '1,2,rose'],
      /expected samples of 1 with 2 classes and the same columns and classes, got samples of 2/,
    ],
  ] as const) {
    const path = rows[0]?.startsWith('a,b') ? await file([...rows, ''].join('\n')) : await table(rows)
    await assert.rejects(
      appendNamed({ name: 'made', paths: [path] }, catalog, WATCH),
      refused('dataset-unreadable', problem),
    )
  }
  assert.deepEqual(await catalog.get('made'), after)
})

test('nothing is appended to a text', async () => {
  const catalog = catalogOf()
  await importNamed(requestOf([await file('to be or not to be '.repeat(20), 'txt')]), catalog, WATCH)
  const paths = [await file('that is the question', 'txt')]
  await assert.rejects(
    appendNamed({ name: 'made', paths }, catalog, WATCH),
    refused(
      'usage',
      /^expected a dataset of samples that can be appended to, got made, a text; import all files under/,
    ),
  )
})

test('a name is used once, and is a name', async () => {
  const catalog = catalogOf()
  await importTable('x,y\n1,a\n2,b\n', { target: classes('y') }, catalog)
  await assert.rejects(
    importTable('x,y\n1,a\n2,b\n', { target: classes('y') }, catalog),
    refused('usage', /got made, which is there; .*starling dataset delete made/),
  )
  for (const name of ['../etc', 'A', '', 'a'.repeat(61)])
    await assert.rejects(
      importNamed(requestOf([await file('x\n')], {}, { name }), catalog, WATCH),
      refused('usage', /expected a name of at most 60/),
    )
  await assert.rejects(catalog.get('other'), refused('dataset-unreadable', /got "other" \(known: made\)/))
})

test('shards are removed with their dataset, but those that others have', async () => {
  const catalog = catalogOf()
  const path = await file('x,y\n1,a\n2,b\n')
  const one = await importNamed(requestOf([path], { target: classes('y') }), catalog, WATCH)
  await importNamed(requestOf([path], { target: classes('y') }, { name: 'twin' }), catalog, WATCH)
  const blobs = await catalog.blobs()
  const [shard] = one.train
  assert.ok(shard)
  await catalog.delete('made', () => false)
  assert.ok(await blobs.has(shard.sha256))
  await catalog.delete('twin', () => false)
  assert.ok(!(await blobs.has(shard.sha256)))
  assert.deepEqual(await catalog.names(), [])
})

test('a dataset that a job trains on is known as used until the job ends', async () => {
  const dataDir = join(folder, crypto.randomUUID())
  const dataset = await importTable('x,y\n1,a\n2,b\n', { target: classes('y') }, new Catalog(dataDir))
  assert.deepEqual((await jobsThatUse(shardsOf(dataset), dataDir)).unfinished, [])
  const store = openSqliteState(join(dataDir, 'state.db'))
  const id = jobId('one-1')
  const { train, validation } = dataset
  await store.createJob({ id, description: JSON.stringify({ spec: { name: 'One' }, manifest: { train, validation } }) })
  const { unfinished, shards } = await jobsThatUse(shardsOf(dataset), dataDir)
  assert.deepEqual(unfinished, ['One (one-1)'])
  assert.ok(train.every(({ sha256 }) => shards.has(sha256)))
  await store.takeOver(id, 0, () => undefined)
  await store.append(id, 1, [{ entry: { type: 'finished', reason: 'trained' }, at: 0 }])
  await store.close()
  assert.deepEqual((await jobsThatUse(shardsOf(dataset), dataDir)).unfinished, [])
})

const mlp = (loss: string, out: number, input = [2]) =>
  parseModelSpec({ input, loss, layers: [{ type: 'linear', name: 'head', out }] })

test('a job names a dataset and gets it normalised; what does not fit its targets is refused when sent', async () => {
  const catalog = catalogOf()
  const content = 'a,b,kind\n1,10,x\n2,20,y\n3,30,x\n4,40,y\n5,50,y\n'
  await importTable(content, { target: classes('kind') }, catalog)
  const values = await file(content.replaceAll('x\n', '1\n').replaceAll('y\n', '2\n'))
  const target = { kind: 'values', columns: ['kind'] } as const
  await importNamed(requestOf([values], { target }, { name: 'values' }), catalog, WATCH)
  const blobs = memoryBlobs()
  const take = (name: string, model = mlp('cross_entropy', 2), more = {}) =>
    importDataset({ name, ...more }, model, { blobs, catalog })
  const manifest = await take('made')
  parse(DatasetManifestSchema, manifest, 'the manifest')
  assert.equal(manifest.normalize?.mean.length, 2)
  assert.deepEqual(manifest.classNames, ['x', 'y'])
  assert.ok(await blobs.has(manifest.train[0]?.sha256 ?? ('' as never)), 'shards are taken over')
  assert.equal((await take('made', undefined, { normalize: false })).normalize, undefined)
  assert.equal((await take('values', mlp('mse', 1))).target, 'values')
  const wrong = (taking: Promise<unknown>, pattern: RegExp) => assert.rejects(taking, refused('job-invalid', pattern))
  await wrong(take('values'), /expected the loss mse for dataset values, whose targets are values, got cross_entropy/)
  await wrong(take('values', mlp('mse', 2)), /one output for each of the 1 values/)
  await wrong(take('made', mlp('cross_entropy', 1)), /a model of the 2 classes of dataset made, got one of 1/)
  await wrong(take('made', mlp('cross_entropy', 2, [3])), /samples of \[2\] of dataset made, got one for \[3\]/)
  await wrong(take('made', undefined, { augment: { flip: 'both' } }), /expected images .* remove dataset\.augment/)
  await assert.rejects(take('unknown'), refused('dataset-unreadable', /known: made, values/))
})

test('a text is characters, bytes or pieces; a job cuts its windows', async () => {
  const text = 'the quick brown fox – jumps over the lazy dog\n'.repeat(400)
  const catalog = catalogOf()
  const path = await file(text, 'txt')
  const from = async (name: string, tokens: string) =>
    importNamed(requestOf([path], { tokens }, { name }), catalog, WATCH)
  const characters = await from('characters', 'characters')
  assert.equal(characters.targets.vocabulary, [...new Set(text)].sort().join(''))
  assert.equal(samplesIn(characters.train) + samplesIn(characters.validation), [...text].length)
  const bytes = await from('bytes', 'bytes')
  assert.equal(samplesIn(bytes.train) + samplesIn(bytes.validation), Buffer.byteLength(text))
  const pieces = await from('pieces', await file(JSON.stringify(tokenizer()), 'json'))
  assert.ok(samplesIn(pieces.train) < 0.9 * samplesIn(characters.train), 'pieces are longer than characters')
  const model = (vocab: number) => gpt({ blocks: 1, heads: 1, channels: 4, context: 16, vocab })
  for (const dataset of [characters, bytes, pieces]) {
    const places = { blobs: memoryBlobs(), catalog }
    const manifest = await importDataset(
      { name: dataset.name, windowsPerEpoch: 100 },
      model(dataset.targets.size),
      places,
    )
    parse(DatasetManifestSchema, manifest, 'the manifest')
    assert.equal(samplesIn(manifest.train), 100)
    assert.deepEqual([manifest.inputShape, manifest.classes], [[16], dataset.targets.size])
  }
  await assert.rejects(
    importDataset({ name: 'bytes' }, model(100), { blobs: memoryBlobs(), catalog }),
    refused('job-invalid', /a model of the 256 tokens in dataset bytes, got one of 100/),
  )
  await assert.rejects(
    importNamed(requestOf([path], { tokens: path }, { name: 'wrong' }), catalog, WATCH),
    refused('dataset-unreadable', /is no tokenizer/),
  )
})

test('validation of a text of pieces begins with a line, or a word, and keeps half of its part', async () => {
  const tokens = await file(JSON.stringify(tokenizer()), 'json')
  const parts = async (text: string): Promise<number[]> => {
    const paths = [await file(text, 'txt')]
    const { train, validation } = await importNamed(requestOf(paths, { tokens }), catalogOf(), WATCH)
    return [samplesIn(train), samplesIn(validation)]
  }
  const line = 'the quick brown fox\n'
  const [six = 0, seventh = 0] = await parts(line.repeat(7))
  assert.equal(six, 6 * seventh, 'the validation of 7 lines begins with the seventh')
  // the second line ends the file: validation begins with a word of it
  const [train = 0, validation = 0] = await parts(line.repeat(2))
  assert.ok(train > seventh && validation > 0, `${train}, ${validation}`)
  const [one = 0, rest = 0] = await parts(`${'the quick brown fox '.repeat(50)}\n`)
  assert.ok(one > 0 && rest > 0, `one line: ${one}, ${rest}`)
})

/** A byte-pair tokenizer of letters and a few pairs. */
function tokenizer(): object {
  const letters = [...new Set('the quick brown fox jumps over lazy dog ')]
    .sort()
    .map((letter) => (letter === ' ' ? 'Ġ' : letter))
  const pieces = ['th', 'the', 'qu', 'ow', 'ov', 'er', 'Ġth', 'Ġthe', 'um', 'ox', '–', 'Ċ', 'â', 'Ģ', 'ĵ']
  const all = [...letters, ...pieces]
  return {
    version: '1.0',
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      vocab: Object.fromEntries(all.map((piece, i) => [piece, i])),
      merges: ['t h', 'th e', 'q u', 'o w', 'o v', 'e r', 'Ġ t', 'u m', 'o x'],
    },
  }
}

test('statistics in parts are those of the whole, and lose no digits to a large mean', () => {
  const values = Float32Array.from({ length: 600 }, (_, i) => 1e5 + Math.sin(i))
  const rows = (from: number, to: number) => Uint32Array.from({ length: to - from }, (_, i) => from + i)
  const flat = new Statistics(1)
  flat.add(values, rows(0, 250), 1)
  const later = new Statistics(1, flat.stored())
  later.add(values, rows(250, 600), 1)
  const channels = new Statistics(2)
  channels.add(values, rows(0, 100), 6)
  const mean = values.reduce((sum, value) => sum + value, 0) / 600
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 600)
  assert.ok(Math.abs((later.summary(1).deviation[0] ?? 0) - deviation) < 1e-5)
  const [low = 0, high = 0] = channels.summary(1).deviation
  assert.ok(Math.abs(low - deviation) < 0.1 && Math.abs(high - deviation) < 0.1)
  assert.equal(channels.summary(1).count, 300)
})

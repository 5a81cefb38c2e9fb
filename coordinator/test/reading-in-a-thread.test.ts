// The reading half of an import in a thread of its own reads, and fails, as it does beside the other half.
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { isGridError } from '@starling-grid/protocol'
import { PNG } from 'pngjs'
import { Catalog } from '../src/datasets/catalog.ts'
import { importNamed } from '../src/datasets/import-named.ts'
import type { ImportOptions } from '../src/datasets/readers/open.ts'
import { BEGINNING } from '../src/datasets/readers/reader.ts'
import { openReadingThread } from '../src/datasets/reading-thread.ts'
import { openReading, type Reading, type ReadingStart, type ReadingTask } from '../src/datasets/reading.ts'
import { markAll } from '../src/datasets/sources.ts'

const folder = await mkdtemp(join(tmpdir(), 'starling-reading-'))
after(() => rm(folder, { recursive: true }))

async function file(name: string, content: string | Uint8Array): Promise<string> {
  const path = join(folder, name)
  await mkdir(join(path, '..'), { recursive: true })
  await writeFile(path, content)
  return path
}

const TABLE: ImportOptions['table'] = { missing: 'drop', target: { kind: 'classes', columns: ['kind'] } }
const BEGIN: ReadingStart = { part: 'train', place: BEGINNING, windows: 0, samples: 0, bytes: 0 }

async function taskOf(path: string, more: Partial<ReadingTask> = {}): Promise<ReadingTask> {
  const options: ImportOptions = { csv: { header: true }, images: { grey: false }, tokens: 'bytes', table: TABLE }
  const marks = { train: await markAll([path]), validation: [] }
  return { marks, options, seed: 1, windowBytes: 2 ** 19, from: BEGIN, ...more }
}

type Open = typeof openReading

/** What a reading says and reads. */
async function read(open: Open, task: ReadingTask) {
  const progress: number[][] = []
  const reading = await open(task, { onProgress: (...told: number[]) => void progress.push(told) })
  try {
    const form = structuredClone(reading.form) // names of classes are added while it reads
    const windows = []
    for await (const { window, ...filled } of reading.windows()) {
      const { x, y } = window.memory
      const { length } = window.mixed(0, 0)
      windows.push({
        ...structuredClone(filled),
        length,
        x: [...x.subarray(0, 4 * length)],
        y: [...y.subarray(0, length)],
      })
    }
    return { form, windows, progress }
  } finally {
    await reading.stop()
  }
}

/** 3 MB in several windows, with quoted cells and missing ones here and there. */
const rows = Array.from({ length: 90_000 }, (_, i) => {
  const kind = i % 7001 === 0 ? `"the ""${i % 4}"""` : `k${(i * i) % 11}`
  return `${i},${i % 997 === 0 ? 'NA' : -i / 8},${(i / 3).toPrecision(17)},1e-${i % 9},${kind}\n`
})
const table = await file('rows.csv', `a,b,c,d,kind\n${rows.join('')}`)

test('a thread reads the windows that are read beside the writing, from the beginning and later', async () => {
  const task = await taskOf(table)
  const [here, there] = [await read(openReading, task), await read(openReadingThread, task)]
  assert.ok(here.windows.length > 2)
  assert.deepEqual(there, here)
  const [first] = here.windows
  assert.ok(first)
  const { part, place } = first.next
  const from = { part, place, windows: 1, samples: first.length, bytes: first.bytes, reader: first.reader }
  const rest = await read(openReadingThread, { ...task, from })
  assert.deepEqual(rest.windows, here.windows.slice(1))
})

test('what is wrong in a thread is told as it is beside the writing, with its cause, and ends the thread', async () => {
  const image = PNG.sync.write(new PNG({ width: 2, height: 2 }))
  await file('pictures/a/1.png', image)
  const damaged = image.subarray(0, 40)
  await file('pictures/a/2.png', damaged)
  const bad = await file('bad.csv', `a,b,c,d,kind\n${rows.join('')}\n1,2,3,4\n`)
  for (const path of [bad, join(folder, 'pictures')]) {
    const task = await taskOf(path)
    const [here, there] = await Promise.all([openReading, openReadingThread].map((open) => failureOf(open, task)))
    assert.ok(isGridError(here) && isGridError(there))
    assert.deepEqual([there.code, there.message, String(there.cause)], [here.code, here.message, String(here.cause)])
  }
  assert.deepEqual(threads(), [])
})

async function failureOf(open: Open, task: ReadingTask): Promise<unknown> {
  return read(open, task).then(
    () => assert.fail('it failed to fail'),
    (error: unknown) => error,
  )
}

/** Ports of threads of this process that run. */
function threads(): readonly string[] {
  return process.getActiveResourcesInfo().filter((name) => name === 'MessagePort' || name === 'Worker')
}

test('a reading that is stopped early ends its thread', async () => {
  const reading: Reading = await openReadingThread(await taskOf(table), {})
  assert.notDeepEqual(threads(), [])
  for await (const { window } of reading.windows()) {
    assert.ok(window.count > 0)
    break
  }
  await reading.stop()
  assert.deepEqual(threads(), [])
})

/** Cells in which bytes and text could differ. */
const CELLS = ['5', '-0', '.5', '5.', ' 7', '1e5', '0.12345678901234567', '-12.25', '\u00a05', '123456789012345', 'NA']
const ENDINGS = ['\n', '\r\n', '']

test('cells that are read from the bytes of a row are those that the parser reads', async () => {
  for (const [i, ending] of ENDINGS.entries()) {
    const line = ending || '\n'
    const cells = CELLS.map((cell, k) => `${cell},${k},${['bär', 'a b', 'x'][k % 3]}`)
    const body = (quoted: boolean): string => ['a,b,kind', ...cells, quoted ? '1,2,"x"' : '1,2,x'].join(line) + ending
    const shards = []
    for (const quoted of [false, true]) {
      const path = await file(`cells-${i}-${quoted}.csv`, body(quoted))
      const options: ImportOptions = { csv: { header: true }, images: { grey: false }, tokens: 'bytes', table: TABLE }
      const request = { name: 'made', paths: [path], validationShare: 0, seed: 1, options }
      const made = await importNamed(request, new Catalog(join(folder, `${i}-${quoted}`)), { now: () => '' })
      assert.deepEqual([made.dropped, made.targets.names], [1, ['a b', 'bär', 'x']])
      shards.push(made.train)
    }
    assert.deepEqual(shards[0], shards[1])
  }
})

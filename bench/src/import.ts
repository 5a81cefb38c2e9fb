// Imports of a large CSV and of a folder of images: how fast beside the parser library alone, and how much memory.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, writeFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { random32 } from '@starling-grid/protocol'
import { PNG } from 'pngjs'
import type { ImportAnswer } from './import-task.ts'
import { type BenchRow, compared } from './row.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

const PROGRAM = fileURLToPath(new URL('import-task.ts', import.meta.url))
/** Compiled as users run it: with another compiler its loops are others. */
const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
/**
 * Of the full sizes, 1 GB and 50,000 images. Less for machines that others use too: STARLING_BENCH_PART=0.1 is a tenth.
 */
const PART = Number(process.env['STARLING_BENCH_PART'] ?? 1)
const CSV_BYTES = 1e9 * PART
const COLUMNS = 20
const IMAGES = Math.round(50_000 * PART)
const SIDE = 32
const CLASSES = 10
/** Different ones, which make the whole size by repetition: a GB of digits takes half a minute to make. */
const [MADE_ROWS, MADE_IMAGES] = [50_000, 1000]
/** wanted: at most 300 MB, and this part of the parser's own speed */
const [WANTED_SPEED, WANTED_PEAK] = [0.6, 300e6]
const MB = 1e6

export async function importSuite(options: SuiteOptions): Promise<BenchRow[]> {
  if (!(PART > 0 && PART <= 1)) throw new Error(`expected STARLING_BENCH_PART above 0 and at most 1, got ${PART}`)
  const folder = await mkdtemp(join(tmpdir(), 'starling-bench-import-'))
  try {
    return [
      ...(isWanted(options, 'csv') ? await rows(options, await csvFile(folder), CSV) : []),
      ...(isWanted(options, 'images') ? await rows(options, await imageFolder(folder), PICTURES) : []),
    ]
  } finally {
    await rm(folder, { recursive: true })
  }
}

interface ImportKind {
  readonly ours: string
  readonly parser: string
  readonly unit: string
  /** units of work in the source */
  work(source: ImportSource, answer: ImportAnswer): number
}

const CSV: ImportKind = {
  ours: 'import-csv',
  parser: 'papaparse',
  unit: 'MB/s',
  work: ({ bytes }) => bytes / MB,
}

const PICTURES: ImportKind = {
  ours: 'import-images',
  parser: 'pngjs',
  unit: 'images/s',
  work: (_, { samples }) => samples,
}

interface ImportSource {
  readonly name: string
  readonly path: string
  readonly bytes: number
}

/** In turns, each import in a process and a data folder of its own. */
async function rows({ rounds, log }: SuiteOptions, source: ImportSource, kind: ImportKind): Promise<BenchRow[]> {
  const [rates, parser, peaks]: [number[], number[], number[]] = [[], [], []]
  for (let round = 0; round < rounds; round++) {
    const dataDir = await mkdtemp(join(tmpdir(), 'starling-bench-data-'))
    const ours = await run(kind.ours, source.path, dataDir).finally(() => rm(dataDir, { recursive: true }))
    const alone = await run(kind.parser, source.path, dataDir)
    if (ours.samples !== alone.samples)
      throw new Error(`${source.name}: ${ours.samples} samples imported, ${alone.samples} parsed`)
    rates.push(kind.work(source, ours) / ours.seconds)
    parser.push(kind.work(source, alone) / alone.seconds)
    peaks.push(ours.peak / MB)
    log(`${source.name}, round ${round + 1}: ${JSON.stringify({ ours, alone })}`)
  }
  const head = { adapter: 'no adapter' }
  return [
    compared(
      { ...head, name: source.name, unit: kind.unit, reach: { peer: kind.parser, ratio: WANTED_SPEED } },
      rates,
      { [kind.parser]: parser },
    ),
    compared(
      { ...head, name: `${source.name}, memory`, unit: 'MB', better: 'less', reach: { peer: 'limit', ratio: 1 } },
      peaks,
      { limit: [WANTED_PEAK / MB] },
    ),
  ]
}

async function run(task: string, path: string, dataDir: string): Promise<ImportAnswer> {
  const { stdout } = await promisify(execFile)(process.execPath, [TYPESCRIPT, PROGRAM, task, path, dataDir])
  return JSON.parse(stdout) as ImportAnswer
}

/** Random numbers of six digits in 20 columns, and a class. The same rows again and again: neither remembers them. */
async function csvFile(folder: string): Promise<ImportSource> {
  const path = join(folder, 'table.csv')
  const out = createWriteStream(path)
  const random = random32(1)
  const names = Array.from({ length: COLUMNS }, (_, i) => `c${i}`)
  out.write(`${names.join(',')},kind\n`)
  const row = (): string => `${names.map(() => number(random())).join(',')},k${random() % CLASSES}\n`
  const rows = Buffer.from(Array.from({ length: MADE_ROWS }, row).join(''))
  for (let written = 0; written < CSV_BYTES; written += rows.byteLength) if (!out.write(rows)) await once(out, 'drain')
  out.end()
  await once(out, 'close')
  const { size } = await stat(path)
  return { name: `import of a CSV of ${Math.round(size / MB)} MB`, path, bytes: size }
}

function number(bits: number): string {
  return ((bits % 2_000_000) / 1000 - 1000).toFixed(3)
}

/** Colour noise, which PNG cannot pack, in ten folders. */
async function imageFolder(folder: string): Promise<ImportSource> {
  const path = join(folder, 'images')
  for (let kind = 0; kind < CLASSES; kind++) await mkdir(join(path, `k${kind}`), { recursive: true })
  const random = random32(2)
  const noise = (): Buffer => {
    const png = new PNG({ width: SIDE, height: SIDE })
    for (let at = 0; at < png.data.length; at += 4) png.data.writeUInt32LE((random() | 0xff000000) >>> 0, at)
    return PNG.sync.write(png)
  }
  const made = Array.from({ length: MADE_IMAGES }, noise)
  let bytes = 0
  for (let i = 0; i < IMAGES; i++) {
    const file = made[i % MADE_IMAGES] ?? noise()
    bytes += file.byteLength
    writeFileSync(join(path, `k${i % CLASSES}`, `${i}.png`), file)
  }
  return { name: `import of ${IMAGES} colour images of ${SIDE} × ${SIDE}`, path, bytes }
}

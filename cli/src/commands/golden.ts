// `golden DIR`: compares the arithmetic of an executor with reference values, one row per file. Exit code 1 when a case
// fails or is not supported, so that unsupported cases are reported too. Cases run in this process, or in
// a browser.
import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { adapterLabel, openGpu, wasmThreads } from '@starling-grid/client-node'
import { describeError, GridError } from '@starling-grid/protocol'
import { createGpuRunner, REFERENCE_ADAPTER, ReferenceRunner } from '@starling-grid/volunteer'
import {
  readGoldenCase,
  runGoldenCase,
  type Comparison,
  type GoldenBackend,
  type GoldenResult,
} from '@starling-grid/volunteer/golden'
import { createWasmRunner, wasmAdapter } from '@starling-grid/volunteer/wasm'
import { Command, Option } from 'commander'
import type { GoldenPlace, GoldenPlaceOptions } from '../golden/place.ts'
import { colorsFor } from '../terminal/colors.ts'

const EXTENSION = '.safetensors'

interface GoldenOptions extends GoldenPlaceOptions {
  readonly in: 'node' | 'browser'
  readonly json?: true
}

/** A file of the folder with its outcome; one that cannot be read has failed. */
interface GoldenRow {
  readonly name: string
  readonly result: GoldenResult | { readonly verdict: 'failed'; readonly reason: string }
}

export async function golden(argv: readonly string[]): Promise<number> {
  const program = new Command('starling golden')
    .description(
      'Runs every *.safetensors case below a folder. Exit code 0 when all pass, 1 when one fails or is not supported.',
    )
    .argument('<dir>', 'folder of golden vectors')
    .addOption(
      new Option('--executor <kind>', 'what computes').choices(['webgpu', 'wasm', 'reference']).default('webgpu'),
    )
    .option('--adapter <text>', "part of the wanted adapter's name")
    .addOption(new Option('--as <kind>', 'compute on a software adapter what a GPU would be given').choices(['gpu']))
    .addOption(new Option('--in <place>', 'where it computes').choices(['node', 'browser']).default('node'))
    .addOption(
      new Option('--precision <kind>', 'how values between kernels are stored').choices(['f32', 'f16']).default('f32'),
    )
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const folder = program.args[0] ?? ''
  const options = program.opts<GoldenOptions>()
  if (options.in === 'browser' && options.as === 'gpu')
    throw new GridError('usage', 'expected --as gpu for cases in this process, got --in browser; use --in node')
  if (options.in === 'browser' && options.precision === 'f16')
    throw new GridError('usage', 'expected f32 for cases in a browser, got f16; use --in node')
  const files = await goldenFiles(folder)
  const place = await (options.in === 'browser' ? openBrowser(options) : openHere(options))
  const print = options.json ? console.error : console.log
  try {
    print(`${files.length} cases on ${adapterLabel(place.adapter)} in ${options.in}`)
    const rows: GoldenRow[] = []
    for (const file of files) rows.push(await runFile(folder, file, place, print))
    return conclude(rows, place, options.json ?? false)
  } finally {
    await place.close()
  }
}

async function goldenFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((cause: unknown) => {
    throw new GridError(
      'dataset-unreadable',
      `expected a folder of golden cases, got "${folder}" ` +
        `(${cause instanceof Error ? cause.message : String(cause)}); name another`,
    )
  })
  const files = entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(EXTENSION))
    .map((entry) => join(entry.parentPath, entry.name))
  if (files.length === 0)
    throw new GridError(
      'dataset-unreadable',
      `expected ${EXTENSION} files in the folder "${folder}", got none; name another`,
    )
  return files.sort()
}

/** Late: only this needs a browser, and what builds its page. */
async function openBrowser(options: GoldenPlaceOptions): Promise<GoldenPlace> {
  const { browserPlace } = await import('../golden/browser.ts')
  return browserPlace(options)
}

async function openHere({ executor, adapter, as, precision = 'f32' }: GoldenPlaceOptions): Promise<GoldenPlace> {
  if (executor !== 'webgpu' && precision === 'f16')
    throw new GridError('usage', `expected f32 with --executor ${executor}, got f16; use --executor webgpu`)
  if (executor === 'reference')
    return placeOf(
      { adapter: REFERENCE_ADAPTER, createRunner: async (graph, capacity) => new ReferenceRunner(graph, capacity) },
      () => undefined,
    )
  if (executor === 'wasm') {
    const threads = wasmThreads(undefined)
    const createRunner: GoldenBackend['createRunner'] = (graph, capacity) =>
      createWasmRunner(graph, { threads, maxMicroBatch: capacity })
    return placeOf({ adapter: wasmAdapter(threads), createRunner }, () => undefined)
  }
  const gpu = await openGpu({ adapter })
  const readText = (url: URL) => readFile(url, 'utf8')
  return placeOf(
    {
      adapter: gpu.description,
      precision,
      createRunner: (graph, capacity) =>
        createGpuRunner({
          device: gpu.device,
          software: gpu.description.software && as !== 'gpu',
          facts: gpu.facts,
          graph,
          readText,
          maxMicroBatch: capacity,
          precision,
        }),
    },
    () => gpu.close(),
  )
}

function placeOf(backend: GoldenBackend, close: () => void): GoldenPlace {
  return {
    adapter: backend.adapter,
    run: (file) => runGoldenCase(readGoldenCase(file), backend),
    close: async () => close(),
  }
}

async function runFile(
  folder: string,
  file: string,
  place: GoldenPlace,
  print: (line: string) => void,
): Promise<GoldenRow> {
  const name = relative(folder, file).slice(0, -EXTENSION.length)
  const row = { name, result: await runSafely(file, place) }
  print(asText(row, place.adapter.name))
  return row
}

/** A damaged file must not hide the result of the files after it; a lost device ends the command. */
async function runSafely(file: string, place: GoldenPlace): Promise<GoldenRow['result']> {
  try {
    return await place.run(await readFile(file))
  } catch (error) {
    if (error instanceof GridError && error.code === 'device-lost') throw error
    return { verdict: 'failed', reason: describeError(error) }
  }
}

function asText({ name, result }: GoldenRow, adapter: string): string {
  const colors = colorsFor(process.stdout)
  const paint = { passed: colors.green, failed: colors.red, unsupported: colors.yellow }[result.verdict]
  const detail = 'comparisons' in result ? result.comparisons.map(comparisonText).join('  ') : result.reason
  return `${paint(result.verdict.padEnd('unsupported'.length))}  ${name}  [${adapter}]  ${detail}`
}

function comparisonText({ what, error, tolerance }: Comparison): string {
  return `${what} ${error.toExponential(1)}${error <= tolerance ? '' : ` > ${tolerance.toExponential(0)}`}`
}

function conclude(rows: readonly GoldenRow[], { adapter }: GoldenPlace, json: boolean): number {
  const named = (verdict: GoldenRow['result']['verdict']) =>
    rows.filter(({ result }) => result.verdict === verdict).map(({ name }) => name)
  const [passed, failed, unsupported] = [named('passed'), named('failed'), named('unsupported')]
  if (json)
    console.log(
      JSON.stringify({ cases: rows.length, passed: passed.length, failed, unsupported, adapter: adapter.name }),
    )
  else console.log(`${passed.length} passed, ${failed.length} failed, ${unsupported.length} unsupported`)
  return passed.length === rows.length ? 0 : 1
}

// `starling dataset import | list | show | delete`: datasets by name in a coordinator's data folder. Works beside a
// coordinator that runs on the same folder, and without one.
import {
  appendNamed,
  Catalog,
  FORMATS,
  type DatasetFormat,
  type ImportRequest,
  importNamed,
  type NamedDataset,
  previewOf,
  shardsOf,
} from '@starling-grid/coordinator/datasets'
import { ModelCatalog } from '@starling-grid/coordinator/models'
import { GridError, plainText, samplesIn } from '@starling-grid/protocol'
import { Command, InvalidArgumentError, Option } from 'commander'
import { wholeNumber } from '../arguments.ts'
import { deleteImport, type FolderFlags, printJson, withFolder } from '../named-imports.ts'
import { duration, ProgressLine } from '../terminal/progress-line.ts'

/** tokens of a sample of examples */
const CONTEXT = 512
/** part of the samples that validates */
const SPLIT = 0.1
const MB = 1e6
/** Characters of the bar. */
const BAR = 24
const SHOWN_SAMPLES = 3
const SHOWN_ROWS = 12

/** How rows of a table become samples. */
interface RowFlags {
  readonly class?: string
  readonly values?: readonly string[]
  readonly labels?: readonly string[]
  readonly inputs?: readonly string[]
  readonly classes?: readonly string[]
  readonly missing: 'error' | 'drop' | number
  readonly header: boolean
  readonly delimiter?: string
}

interface ImageFlags {
  readonly size?: ImportRequest['options']['images']['size']
  readonly grey?: boolean
  readonly channels?: 'first' | 'last'
}

interface ImportCommandOptions extends FolderFlags, RowFlags, ImageFlags {
  readonly format?: DatasetFormat
  readonly tokens: string
  readonly model?: string
  readonly context: number
  readonly packing: boolean
  readonly validation?: readonly string[]
  readonly split: number
  readonly seed: number
  readonly append?: boolean
}

export async function dataset(argv: readonly string[]): Promise<number> {
  const program = new Command('starling dataset')
    .description('Datasets by name. A job trains on one with "dataset": {"name": NAME}.')
    .exitOverride()
  importCommand(program)
  withFolder(program.command('list').description('all datasets')).action(list)
  withFolder(program.command('show').description('statistics and a few samples').argument('<name>')).action(show)
  withFolder(
    program.command('delete').description('frees its disk; refused while a job trains on it').argument('<name>'),
  ).action(remove)
  await program.parseAsync([...argv], { from: 'user' })
  return 0
}

function importCommand(program: Command): void {
  withFolder(program.command('import'))
    .description('Reads files into checksummed shards. Called again after a kill, it goes on where it was.')
    .argument('<name>', 'small letters, digits, dots and dashes')
    .argument('<path...>', 'files or folders')
    .addOption(new Option('--format <format>', 'by the ending of the files otherwise').choices(FORMATS))
    .option('--class <column>', 'of a table: the column of classes')
    .option('--values <columns>', 'of a table: columns of numbers to predict', commas)
    .option('--labels <columns>', 'of a table: columns of 0 and 1, of which several may be set', commas)
    .option('--inputs <columns>', 'of a table: absent, all columns that are no target', commas)
    .option('--classes <names>', 'names of the classes in the order of their numbers', commas)
    .option('--missing <what>', 'for an empty cell: error, drop (the row), or a number', missing, 'error')
    .option('--no-header', 'the first row is a sample; columns are called 1, 2, 3 …')
    .option('--delimiter <character>', 'between cells; found out otherwise', delimiter)
    .option('--size <width>x<height>', 'of images: scaled to it; without it all have the size of the first', size)
    .option('--grey', 'of images: one channel instead of three')
    .addOption(
      new Option('--channels <place>', 'of images in arrays, when sizes do not tell').choices(['first', 'last']),
    )
    .option('--tokens <what>', 'of a text: characters, bytes, or the path of a tokenizer.json', 'characters')
    .option(
      '--model <name>',
      'of an imported model: JSON lines of examples, or running text, in its tokens (docs/FINETUNE.md)',
    )
    .option('--context <n>', 'with --model: tokens of a sample', wholeNumber(2), CONTEXT)
    .option('--no-packing', 'with --model: each example has a sample of its own')
    .option('--validation <path...>', 'files that validate; a part of the others otherwise')
    .option('--split <part>', 'part of the samples that validates', part, SPLIT)
    .option('--seed <n>', 'of the order of samples and of the split', wholeNumber(0), 0)
    .option(
      '--append',
      'adds training samples, read as the first ones were; jobs that run train them from the next epoch on',
    )
    .action((name: string, paths: readonly string[], options: ImportCommandOptions, command: Command) =>
      importInto(name, paths, { ...options, given: givenOf(command) }),
    )
}

/** Options that say how files are read, as they were typed. */
function givenOf(command: Command): readonly string[] {
  const others = new Set(['append', 'dataDir', 'json', 'url', 'token'])
  return Object.keys(command.opts()).filter((name) => !others.has(name) && command.getOptionValueSource(name) === 'cli')
}

interface ImportCall extends ImportCommandOptions {
  readonly given: readonly string[]
}

async function importInto(name: string, paths: readonly string[], options: ImportCall): Promise<void> {
  const catalog = new Catalog(options.dataDir)
  const line = new ProgressLine()
  const began = performance.now()
  const watch = {
    now: () => new Date().toISOString(),
    onProgress: (done: number, total: number, samples: number) =>
      line.show(progress({ done, total, samples }, (performance.now() - began) / 1000)),
  }
  if (options.append === true) requireNoOthers(options.given)
  const chat = options.model === undefined ? undefined : await chatImport(options.model, options)
  const dataset =
    options.append === true
      ? await appendNamed({ name, paths }, catalog, watch)
      : await importNamed(requestOf(name, paths, options, chat), catalog, watch)
  const seconds = (performance.now() - began) / 1000
  const verb = options.append === true ? 'appended to' : 'imported'
  line.say(`${verb} ${name} in ${duration(seconds)}: ${described(dataset)}`)
  if (options.json === true) printJson(summary(dataset))
}

/** @throws GridError 'usage' */
function requireNoOthers(given: readonly string[]): void {
  if (given.length === 0) return
  throw new GridError(
    'usage',
    `expected --append without options of how files are read, got ${given.join(', ')}; ` +
      'appended files are read as those of the first import',
  )
}

/** @throws GridError 'model-invalid' for another name, or a model without a tokenizer */
async function chatImport(name: string, { dataDir, context, packing }: ImportCommandOptions) {
  const { tokenizer, chatTemplate, special, ends } = await new ModelCatalog(dataDir).get(name)
  if (tokenizer === undefined)
    throw new GridError(
      'model-invalid',
      `expected a model with a tokenizer.json, got ${name}, whose folder had none; put it there and import it again`,
    )
  return { words: { tokenizer, chatTemplate, special, ends }, context, pack: packing }
}

// oxlint-disable-next-line max-params -- the command's arguments, and what one of them names
function requestOf(
  name: string,
  paths: readonly string[],
  options: ImportCommandOptions,
  chat: ImportRequest['options']['chat'],
): ImportRequest {
  const { format, inputs, classes, missing: missingCells, header, delimiter: separator, tokens, validation } = options
  const target = targetOf(options)
  return {
    name,
    paths,
    ...(validation === undefined ? {} : { validationPaths: validation }),
    validationShare: options.split,
    seed: options.seed,
    options: {
      ...(format === undefined ? {} : { format }),
      csv: { header, ...(separator === undefined ? {} : { delimiter: separator }) },
      table: {
        ...(inputs === undefined ? {} : { inputs }),
        ...(classes === undefined ? {} : { classes }),
        ...(target === undefined ? {} : { target }),
        missing: missingCells,
      },
      ...(options.channels === undefined ? {} : { channels: options.channels }),
      images: { ...(options.size === undefined ? {} : { size: options.size }), grey: options.grey === true },
      tokens,
      ...(chat === undefined ? {} : { chat }),
    },
  }
}

/** @throws GridError 'usage' for more than one */
function targetOf({
  class: column,
  values,
  labels,
}: ImportCommandOptions): ImportRequest['options']['table']['target'] {
  const given = [
    ...(column === undefined ? [] : [{ kind: 'classes', columns: [column] } as const]),
    ...(values === undefined ? [] : [{ kind: 'values', columns: values } as const]),
    ...(labels === undefined ? [] : [{ kind: 'labels', columns: labels } as const]),
  ]
  if (given.length > 1)
    throw new GridError(
      'usage',
      'expected one of --class, --values and --labels, got several; choose what is predicted',
    )
  return given[0]
}

async function list({ dataDir, json }: FolderFlags): Promise<void> {
  const catalog = new Catalog(dataDir)
  const datasets = await Promise.all((await catalog.names()).map((name) => catalog.get(name)))
  if (json === true) return printJson(datasets.map(summary))
  if (datasets.length === 0)
    console.log(`No datasets in ${dataDir}. Import one with: starling dataset import NAME PATH`)
  const width = Math.max(...datasets.map(({ name }) => name.length))
  for (const found of datasets) console.log(`${found.name.padEnd(width)}  ${described(found)}`)
}

async function show(name: string, { dataDir, json }: FolderFlags): Promise<void> {
  const catalog = new Catalog(dataDir)
  const found = await catalog.get(name)
  if (json === true)
    return printJson({ ...summary(found), statistics: found.statistics ?? null, counts: found.counts ?? null })
  console.log(`${name}: ${described(found)}`)
  for (const { path, files, bytes, sha256 } of found.sources)
    console.log(
      `  from ${plainText(path)}: ${files} ${files === 1 ? 'file' : 'files'}, ${megabytes(bytes)}, SHA-256 ${sha256}`,
    )
  for (const row of statisticsOf(found)) console.log(`  ${row}`)
  for (const { target, sample } of await previewOf(found, await catalog.blobs(), SHOWN_SAMPLES)) {
    console.log(`\n  ${plainText(target)}`)
    for (const row of sample) console.log(`    ${plainText(row)}`)
  }
}

async function remove(name: string, flags: FolderFlags): Promise<void> {
  const catalog = new Catalog(flags.dataDir)
  const blobs = shardsOf(await catalog.get(name))
  await deleteImport({ name, free: 'dataset that no job trains on', blobs, catalog }, flags)
}

interface ImportShare {
  /** bytes */
  readonly done: number
  readonly total: number
  readonly samples: number
}

function progress({ done, total, samples }: ImportShare, seconds: number): string {
  const share = total === 0 ? 1 : Math.min(1, done / total)
  const filled = Math.round(BAR * share)
  const left = share > 0.01 ? `, ${duration((seconds * (1 - share)) / share)} left` : ''
  const bar = '#'.repeat(filled) + '.'.repeat(BAR - filled)
  const bytes = `${megabytes(done)} of ${megabytes(total)}`
  return `[${bar}] ${Math.floor(100 * share)} %  ${samples} samples  ${bytes}${left}`
}

function megabytes(bytes: number): string {
  return `${(bytes / MB).toFixed(bytes < 10 * MB ? 1 : 0)} MB`
}

function summary(found: NamedDataset): object {
  const { name, format, importedAt, inputs, dropped, sources, train, validation } = found
  const { tokenizer: _, ...targets } = found.targets
  return {
    name,
    format,
    importedAt,
    inputs,
    targets: targets.vocabulary === undefined ? targets : { ...targets, vocabulary: [...targets.vocabulary].length },
    dropped,
    sources,
    training: samplesIn(train),
    validation: samplesIn(validation),
    shards: train.length + validation.length,
    bytes: [...train, ...validation].reduce((sum, { bytes }) => sum + bytes, 0),
  }
}

function described({ format, inputs, targets, train, validation, dropped }: NamedDataset): string {
  const [training, validating] = [samplesIn(train), samplesIn(validation)]
  const isRunning = targets.kind === 'tokens' && targets.labelled === undefined
  const what = isRunning ? 'tokens' : `samples of ${inputs.shape.join(' × ')}`
  const left = dropped === 0 ? '' : `, ${dropped} rows left out`
  const kinds = targets.kind === 'tokens' ? `${targets.size} different tokens` : `${targets.size} ${targets.kind}`
  return `${format}, ${training} ${what} to train on and ${validating} to validate with, ${kinds}${left}`
}

function statisticsOf({ statistics, inputs, counts, targets }: NamedDataset): string[] {
  const rows = (statistics?.mean ?? []).slice(0, SHOWN_ROWS).map((mean, i) => {
    const name = inputs.inputNames?.[i] ?? `channel ${i}`
    const [deviation, least, greatest] = [statistics?.deviation[i], statistics?.least[i], statistics?.greatest[i]]
    return `${plainText(name)}: mean ${mean}, deviation ${deviation}, from ${least} to ${greatest}`
  })
  const classes = (counts ?? [])
    .slice(0, SHOWN_ROWS)
    .map((count, i) => `${plainText(targets.names?.[i] ?? String(i))}: ${count}`)
  return [...rows, ...(classes.length === 0 ? [] : [`training samples: ${classes.join(', ')}`])]
}

function commas(text: string): string[] {
  return text.split(',').map((name) => name.trim())
}

function missing(text: string): ImportCommandOptions['missing'] {
  if (text === 'error' || text === 'drop') return text
  if (text.trim() !== '' && Number.isFinite(Number(text))) return Number(text)
  throw new InvalidArgumentError('expected error, drop or a number')
}

function delimiter(text: string): string {
  const character = text === '\\t' || text === 'tab' ? '\t' : text
  if (character.length === 1) return character
  throw new InvalidArgumentError('expected one character, or tab')
}

function size(text: string): NonNullable<ImportCommandOptions['size']> {
  const [, width, height] = /^([1-9][0-9]{0,3})x([1-9][0-9]{0,3})$/.exec(text) ?? []
  if (width !== undefined && height !== undefined) return { width: Number(width), height: Number(height) }
  throw new InvalidArgumentError('expected a size in pixels such as 32x32')
}

function part(text: string): number {
  const value = Number(text)
  if (value >= 0 && value < 1) return value
  throw new InvalidArgumentError('expected a part from 0 to below 1, such as 0.1')
}

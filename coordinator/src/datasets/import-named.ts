// Import of a dataset under a name. Reads a window of samples, mixes it, cuts off the validation split, measures,
// writes shards, notes how far it is, and goes on. Memory holds one window whatever the size of the source.
import { GridError, samplesIn, type ShardRef } from '@starling-grid/protocol'
import { requireImportName } from '../named-imports.ts'
import type { Catalog, ImportAgain, NamedDataset } from './catalog.ts'
import { importChatFiles } from './chat-import.ts'
import type { SampleForm, SourceFile } from './forms.ts'
import type { Imported, ImportTools, ImportRequest, ImportWatch } from './import-request.ts'
import { beginningOf, ImportFile, type ImportState, keyOf } from './import-state.ts'
import type { StoredClassNames } from './readers/class-names.ts'
import { formatOf } from './readers/open.ts'
import { openReadingThread } from './reading-thread.ts'
import { openReading, PARTS, type ReadForm, type Reading, type ReadWindow } from './reading.ts'
import { WINDOW_BYTES } from './sample-window.ts'
import { datasetUnreadable } from './samples.ts'
import { hashedAll, markAll, requireUnchanged } from './sources.ts'
import { Statistics } from './statistics.ts'
import { importTextFiles } from './text-import.ts'

/** References that a job's message can name, within MAX_MESSAGE_BYTES. */
const MAX_SHARDS = 1800
/** Bytes of sources from which a thread that reads them is worth its start of some 0.3 s. */
const OWN_THREAD_BYTES = 8 * 2 ** 20

/**
 * Durable when it resolves. Killed before, the same call goes on behind the last window that was written.
 * @throws GridError 'usage', 'dataset-unreadable' naming file and line, 'disk-failed'
 */
export async function importNamed(request: ImportRequest, catalog: Catalog, watch: ImportWatch): Promise<NamedDataset> {
  requireImportName(request.name)
  if ((await catalog.find(request.name)) !== undefined)
    throw new GridError(
      'usage',
      `expected the name of a new dataset, got ${request.name}, which is there; ` +
        `choose another, or delete it first with: starling dataset delete ${request.name}`,
    )
  const marks = { train: await markAll(request.paths), validation: await markAll(request.validationPaths ?? []) }
  const file = new ImportFile(catalog.folder, request.name)
  const state = await file.read(keyOf([request, marks]))
  const tools = { request, marks, file, blobs: await catalog.blobs(), watch }
  const { made, sources } = await withSources(marks, () => importedBy(tools, state))
  const dataset: NamedDataset = { ...made, name: request.name, importedAt: watch.now(), sources }
  requireDescribable(dataset)
  await catalog.put(dataset)
  await file.remove()
  return dataset
}

/**
 * Further files for a dataset, read as the first ones were. Their samples train; what validates stays, so that
 * validations before and after compare. Durable when it resolves; killed before, the same call goes on.
 * @throws GridError 'usage' where the dataset does not tell how it was imported, 'dataset-unreadable', 'disk-failed'
 */
export async function appendNamed(
  { name, paths }: Pick<ImportRequest, 'name' | 'paths'>,
  catalog: Catalog,
  watch: ImportWatch,
): Promise<NamedDataset> {
  const before = await catalog.get(name)
  const { again, inputs, targets } = before
  if (again === undefined) throw notAppendable(before)
  const request: ImportRequest = { name, paths, validationShare: 0, seed: again.seed, options: again.options }
  const marks = { train: await markAll(paths), validation: [] }
  const file = new ImportFile(catalog.folder, name)
  const key = keyOf([request, marks, before.importedAt, before.train.length])
  const tools = { request, marks, file, blobs: await catalog.blobs(), watch }
  const state = await file.read(key, goingOn(before, again, key))
  const { made, sources } = await withSources(marks, () => new Import(tools, state, { inputs, targets }).run())
  const all = [...before.sources, ...sources]
  const dataset: NamedDataset = { ...made, name, importedAt: before.importedAt, sources: all }
  requireDescribable(dataset)
  await catalog.put(dataset)
  await file.remove()
  return dataset
}

/** What is imported, and what it is imported from. @throws GridError 'dataset-unreadable' for a file that changed */
async function withSources<T>(
  marks: ImportTools['marks'],
  importing: () => Promise<T>,
): Promise<{ readonly made: T; readonly sources: readonly SourceFile[] }> {
  const end = new AbortController()
  const all = [...marks.train, ...marks.validation]
  const hashing = hashedAll(all, end.signal)
  hashing.catch(() => undefined) // where the import fails, too, that is told
  try {
    const made = await importing()
    const sources = await hashing
    requireUnchanged(all)
    return { made, sources }
  } finally {
    end.abort()
  }
}

function goingOn({ train, validation, dropped, counts, targets }: NamedDataset, again: ImportAgain, key: string) {
  const reader: StoredClassNames = { names: targets.names ?? [], form: 'given' }
  return {
    ...beginningOf(key),
    windows: again.windows,
    samples: [samplesIn(train), samplesIn(validation)] as const,
    dropped,
    train,
    validation,
    moments: again.moments,
    counts: counts ?? [],
    reader,
  }
}

function notAppendable({ name, targets }: NamedDataset): GridError {
  const why = targets.kind === 'tokens' ? 'a text' : 'one that an older program imported'
  return new GridError(
    'usage',
    `expected a dataset of samples that can be appended to, got ${name}, ${why}; import all files under another name`,
  )
}

function importedBy(tools: ImportTools, state: ImportState): Promise<Imported> {
  const { request, marks } = tools
  const { chat } = request.options
  const format = formatOf(request.paths, request.options, marks.train)
  if (chat !== undefined && format !== 'text') return importChatFiles({ ...tools, chat })
  return format === 'text' ? importTextFiles({ ...tools, state }) : new Import(tools, state).run()
}

class Import {
  readonly #parts: ImportTools
  #state: ImportState
  /** what samples are, where others are there already */
  readonly #wanted: Pick<NamedDataset, 'inputs' | 'targets'> | undefined

  constructor(parts: ImportTools, state: ImportState, wanted?: Pick<NamedDataset, 'inputs' | 'targets'>) {
    this.#parts = parts
    this.#state = state
    this.#wanted = wanted
  }

  async run(): Promise<Imported> {
    const reading = await this.#open()
    try {
      let { form } = reading
      requireSameForm(form, this.#wanted)
      const statistics = new Statistics(form.inputs.shape[0] ?? 1, this.#state.moments)
      for await (const read of reading.windows()) {
        await this.#write(read, statistics, form.inputs)
        form = { ...form, targets: read.targets }
      }
      return this.#result(form, statistics)
    } finally {
      await reading.stop()
    }
  }

  #open(): Promise<Reading> {
    const { request, marks, watch } = this.#parts
    const { part, place, windows, samples, bytes, reader } = this.#state
    const from = { part, place, windows, samples: samples[0] + samples[1], bytes, reader }
    const { windowBytes = WINDOW_BYTES, onProgress } = watch
    const task = { marks, options: request.options, seed: request.seed, windowBytes, from }
    const open = bytesOf(marks) < OWN_THREAD_BYTES ? openReading : openReadingThread
    return open(task, onProgress === undefined ? {} : { onProgress })
  }

  async #write(read: ReadWindow, statistics: Statistics, { shape }: SampleForm): Promise<void> {
    const { window, part, next, targets } = read
    const state = this.#state
    const rows = window.mixed(this.#parts.request.seed, state.windows)
    const split = part === 'validation' ? rows.length : this.#toValidate(rows.length)
    const [validate, train] = [rows.subarray(0, split), rows.subarray(split)]
    const elements = shape.reduce((product, length) => product * length, 1)
    statistics.add(window.memory.x, train, elements)
    const counts = [...state.counts]
    if (targets.kind !== 'values') window.countInto(counts, train)
    const write = (shardRows: Uint32Array, before: readonly ShardRef[]): Promise<ShardRef[]> =>
      window.write(shardRows, this.#parts.blobs, before.length)
    this.#state = {
      ...state,
      ...next,
      windows: state.windows + 1,
      samples: [state.samples[0] + train.length, state.samples[1] + validate.length],
      dropped: state.dropped + read.dropped,
      bytes: state.bytes + read.bytes,
      train: [...state.train, ...(await write(train, state.train))],
      validation: [...state.validation, ...(await write(validate, state.validation))],
      moments: statistics.stored(),
      counts,
      reader: read.reader,
    }
    await this.#parts.file.write(this.#state)
  }

  /** So many of the next samples that the share holds of all so far; of few samples at least one. */
  #toValidate(count: number): number {
    const { request, marks } = this.#parts
    if (marks.validation.length > 0 || request.validationShare === 0) return 0
    const [train, validation] = this.#state.samples
    const wanted = Math.max(1, Math.round(request.validationShare * (train + validation + count)))
    return Math.min(Math.max(0, count - Number(train === 0)), Math.max(0, wanted - validation))
  }

  #result({ format, inputs, targets }: ReadForm, statistics: Statistics): Imported {
    const { train, validation, dropped, counts } = this.#state
    const { request } = this.#parts
    if (train.length === 0)
      throw datasetUnreadable(
        this.#parts.request.paths.join(', '),
        'holds no training samples',
        'Name files with samples, or use a smaller --split.',
      )
    return {
      format,
      inputs,
      targets,
      statistics: statistics.summary(inputs.inputScale),
      ...(targets.kind === 'values' ? {} : { counts: Array.from({ length: targets.size }, (_, i) => counts[i] ?? 0) }),
      dropped,
      again: {
        options: request.options,
        seed: request.seed,
        windows: this.#state.windows,
        moments: statistics.stored(),
      },
      train,
      validation,
    }
  }
}

/**
 * Before anything is read of files that have other columns, sizes or classes.
 * @throws GridError 'dataset-unreadable'
 */
function requireSameForm(found: ReadForm, wanted: Pick<NamedDataset, 'inputs' | 'targets'> | undefined): void {
  if (wanted === undefined) return
  const formOf = ({ inputs, targets: { kind, size, names } }: Pick<NamedDataset, 'inputs' | 'targets'>): string =>
    JSON.stringify([inputs, kind, size, names])
  if (formOf(found) === formOf(wanted)) return
  const text = ({ inputs, targets }: Pick<NamedDataset, 'inputs' | 'targets'>): string =>
    `samples of ${inputs.shape.join(' × ')} with ${targets.size} ${targets.kind}`
  throw datasetUnreadable(
    'the new files',
    `expected ${text(wanted)} and the same columns and classes, got ${text(found)}`,
    'Name files that look like those of the first import.',
  )
}

function bytesOf(marks: ImportTools['marks']): number {
  const files = PARTS.flatMap((part) => marks[part].flatMap((mark) => mark.files))
  return files.reduce((sum, { bytes }) => sum + bytes, 0)
}

function requireDescribable({ name, train, validation }: NamedDataset): void {
  if (train.length + validation.length <= MAX_SHARDS) return
  throw datasetUnreadable(
    name,
    `has ${train.length + validation.length} shards, and a job can name ${MAX_SHARDS}`,
    'Import it in parts, under several names.',
  )
}

// The reading half of an import: samples, window after window, each with the place at which reading goes on behind it.
// Knows nothing of shards. Runs beside the other half in a thread of its own (reading-thread.ts), or in its thread.
import type { SampleForm, TargetForm } from './forms.ts'
import { type ImportOptions, openReader } from './readers/open.ts'
import { BEGINNING, type ReadPlace, type SampleReader, type SplitPart } from './readers/reader.ts'
import { renumber, SampleWindow, type WindowMemory } from './sample-window.ts'
import type { SourceMark } from './sources.ts'

export const PARTS = ['train', 'validation'] as const

/** What is read, and from where on. Plain data: a thread is given it. */
export interface ReadingTask {
  readonly marks: Readonly<Record<SplitPart, readonly SourceMark[]>>
  readonly options: ImportOptions
  readonly seed: number
  readonly windowBytes: number
  readonly from: ReadingStart
}

export interface ReadingStart {
  readonly part: SplitPart
  readonly place: ReadPlace
  /** that were read before */
  readonly windows: number
  /** samples and source bytes that were read before */
  readonly samples: number
  readonly bytes: number
  /** what the reader learned */
  readonly reader?: unknown
}

/** What samples are, as far as that shows before they are read. */
export interface ReadForm {
  readonly format: string
  readonly inputs: SampleForm
  readonly targets: TargetForm
}

export interface ReadWindow {
  /** the caller's until it asks for the next one */
  readonly window: SampleWindow
  readonly part: SplitPart
  readonly next: { readonly part: SplitPart; readonly place: ReadPlace }
  readonly dropped: number
  /** source that was read for it */
  readonly bytes: number
  /** complete in the last window */
  readonly targets: TargetForm
  readonly reader: unknown
}

export interface Reading {
  readonly form: ReadForm
  windows(): AsyncIterable<ReadWindow>
  /** Nothing is read after it. */
  stop(): Promise<void>
}

export interface ReadingWatch {
  /** bytes of the sources that were read, of all */
  readonly onProgress?: (done: number, total: number, samples: number) => void
  /** For the next window; absent: all windows have the same. */
  readonly memory?: () => Promise<WindowMemory | undefined>
}

/** @throws GridError 'usage', 'dataset-unreadable' */
export async function openReading(task: ReadingTask, watch: ReadingWatch): Promise<Reading> {
  const { marks, options, seed, from } = task
  const reader = await openReader({ marks, options, seed, state: from.reader })
  const form = { format: reader.format, inputs: reader.inputs, targets: reader.targets() }
  return { form, windows: () => new WindowReading(task, watch, reader).run(), stop: async () => undefined }
}

class WindowReading {
  readonly #task: ReadingTask
  readonly #watch: ReadingWatch
  readonly #reader: SampleReader
  #window: SampleWindow | undefined
  #windows: number
  #samples: number
  #bytes: number
  /** of the window that is being filled */
  #pending = { dropped: 0, bytes: 0 }

  constructor(task: ReadingTask, watch: ReadingWatch, reader: SampleReader) {
    this.#task = task
    this.#watch = watch
    this.#reader = reader
    this.#windows = task.from.windows
    this.#samples = task.from.samples
    this.#bytes = task.from.bytes
  }

  async *run(): AsyncIterable<ReadWindow> {
    const { marks, from } = this.#task
    for (const part of PARTS.slice(PARTS.indexOf(from.part)))
      if (part === 'train' || marks.validation.length > 0) yield* this.#readPart(part)
  }

  async *#readPart(part: SplitPart): AsyncIterable<ReadWindow> {
    const { marks, from } = this.#task
    let place = from.part === part ? from.place : BEGINNING
    let window = await this.#emptyWindow()
    for await (const run of this.#reader.read(part, place)) {
      if (!window.hasRoom(run)) {
        const order = this.#settle(window)
        yield this.#filled(window, part, { part, place })
        // it was read before the classes got their order
        if (order !== undefined) renumber(run.y, run.count, order)
        window = await this.#emptyWindow()
      }
      window.add(run)
      this.#pending = { dropped: this.#pending.dropped + run.dropped, bytes: this.#pending.bytes + run.bytes }
      place = run.next
      this.#tell(run.bytes, run.count)
    }
    this.#settle(window)
    const isLast = part === 'validation' || marks.validation.length === 0
    yield this.#filled(window, part, isLast ? { part, place } : { part: 'validation', place: BEGINNING })
  }

  /** Old class → class, when the window gave classes their order. */
  #settle(window: SampleWindow): Int32Array | undefined {
    const order = this.#windows === 0 ? this.#reader.settle() : undefined
    if (order !== undefined) window.renumber(order)
    this.#windows++
    return order
  }

  #filled(window: SampleWindow, part: SplitPart, next: ReadWindow['next']): ReadWindow {
    const targets = this.#reader.targets()
    const filled = { window, part, next, ...this.#pending, targets, reader: this.#reader.state() }
    this.#pending = { dropped: 0, bytes: 0 }
    return filled
  }

  async #emptyWindow(): Promise<SampleWindow> {
    const { inputs } = this.#reader
    const { windowBytes } = this.#task
    const memory = this.#watch.memory === undefined ? this.#window?.memory : await this.#watch.memory()
    this.#window = new SampleWindow({ inputs, targets: this.#reader.targets(), windowBytes }, memory)
    return this.#window
  }

  #tell(bytes: number, samples: number): void {
    const { train, validation } = this.#reader.bytes
    this.#bytes += bytes
    this.#samples += samples
    this.#watch.onProgress?.(this.#bytes, train + validation, this.#samples)
  }
}

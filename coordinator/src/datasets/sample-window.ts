// Some samples that are mixed and cut into shards together: as many as memory should hold, not as many as there are.
import { epochOrder, MAX_SHARD_BYTES, type ShardRef, writeSafetensors } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { SampleForm, TargetForm } from './forms.ts'
import type { SampleRun } from './readers/reader.ts'
import { datasetUnreadable } from './samples.ts'

/** Bytes of inputs that are mixed at once. */
export const WINDOW_BYTES = 24 * 2 ** 20
/** As shards.ts; a large dataset has larger shards, since a job's message names all of them. */
const SHARD_BYTES = 1.5 * 2 ** 20
const LARGE_SHARD_BYTES = 6 * 2 ** 20
const SMALL_SHARDS = 400
/** The disk flushes one while another is hashed. All of a window would take its memory twice more. */
const SHARDS_AT_ONCE = 4

export interface WindowForm {
  readonly inputs: SampleForm
  readonly targets: Pick<TargetForm, 'kind' | 'size'>
  readonly windowBytes: number
}

/** Room for samples. It goes from thread to thread. */
export type WindowMemory = Pick<SampleRun, 'x' | 'y'>

export class SampleWindow {
  readonly #form: WindowForm
  readonly #elements: number
  readonly #capacity: number
  /** targets of one sample */
  readonly #targetSize: number
  readonly memory: WindowMemory
  count: number

  /**
   * `memory`: of another window of this form, and so many samples that are in it.
   * @throws GridError 'dataset-unreadable' when a sample does not fit a shard
   */
  constructor(form: WindowForm, memory?: WindowMemory, count = 0) {
    const { inputs, targets, windowBytes } = form
    const targetSize = targets.kind === 'classes' ? 1 : targets.size
    this.#form = form
    this.#targetSize = targetSize
    this.count = count
    this.#elements = inputs.shape.reduce((product, size) => product * size, 1)
    const bytes = this.#elements * elementBytes(inputs)
    if (bytes + 8 * targetSize + 1024 > MAX_SHARD_BYTES)
      throw datasetUnreadable(
        'the dataset',
        `one sample of ${inputs.shape.join(' × ')} has ${bytes} bytes and does not fit a shard of ${MAX_SHARD_BYTES}`,
        'Make the samples smaller, images with --size.',
      )
    this.#capacity = Math.max(1, Math.floor(windowBytes / bytes))
    const values = this.#capacity * this.#elements
    this.memory = memory ?? {
      x: inputs.inputType === 'U8' ? new Uint8Array(values) : new Float32Array(values),
      y: emptyTargets(targets.kind, this.#capacity * targetSize),
    }
  }

  /** Whether this run goes into the window. Readers make runs that fit an empty one. */
  hasRoom({ count }: SampleRun): boolean {
    return this.count + count <= this.#capacity
  }

  add({ count, x, y }: SampleRun): void {
    if (this.count + count > this.#capacity)
      throw new Error(`internal: ${count} samples for a window of ${this.#capacity}`)
    this.memory.x.set(x, this.count * this.#elements)
    this.memory.y.set(y, this.count * this.#targetSize)
    this.count += count
  }

  /** Old class → class. */
  renumber(order: Int32Array): void {
    renumber(this.memory.y, this.count, order)
  }

  /** Adds the samples of each class, or of each label that is set. */
  countInto(counts: number[], rows: Uint32Array): void {
    const { y } = this.memory
    const size = this.#targetSize
    for (const row of rows)
      if (this.#form.targets.kind === 'classes') counts[y[row] ?? 0] = (counts[y[row] ?? 0] ?? 0) + 1
      else for (let i = 0; i < size; i++) counts[i] = (counts[i] ?? 0) + Number((y[row * size + i] ?? 0) !== 0)
    for (let i = 0; i < counts.length; i++) counts[i] ??= 0
  }

  /** All samples in an order that the seed gives. */
  mixed(seed: number, window: number): Uint32Array {
    return epochOrder(seed, window, this.count)
  }

  /** Cuts these rows into shards of about the same size. @throws GridError 'disk-failed' */
  async write(rows: Uint32Array, blobs: BlobStore, before: number): Promise<ShardRef[]> {
    const bytes = this.#elements * elementBytes(this.#form.inputs)
    const target = before < SMALL_SHARDS ? SHARD_BYTES : LARGE_SHARD_BYTES
    const count = Math.ceil(rows.length / Math.max(1, Math.floor(target / bytes)))
    const border = (i: number): number => Math.floor((i * rows.length) / count)
    const put = async (part: Uint32Array): Promise<ShardRef> => {
      const shard = this.#encode(part)
      return { sha256: await blobs.put(shard), bytes: shard.byteLength, samples: part.length }
    }
    const shards: ShardRef[] = []
    for (let i = 0; i < count; i += SHARDS_AT_ONCE) {
      const some = Array.from({ length: Math.min(SHARDS_AT_ONCE, count - i) }, (_, k) => i + k)
      shards.push(...(await Promise.all(some.map((k) => put(rows.subarray(border(k), border(k + 1)))))))
    }
    return shards
  }

  #encode(rows: Uint32Array): Uint8Array {
    const { inputs, targets } = this.#form
    const targetSize = this.#targetSize
    const elements = this.#elements
    const x =
      inputs.inputType === 'U8' ? new Uint8Array(rows.length * elements) : new Float32Array(rows.length * elements)
    const y = emptyTargets(targets.kind, rows.length * targetSize)
    copyRows(this.memory.x, x, rows, elements)
    copyRows(this.memory.y, y, rows, targetSize)
    return writeSafetensors(
      new Map([
        ['x', { dtype: inputs.inputType, shape: [rows.length, ...inputs.shape], data: bytesOf(x) }],
        [
          'y',
          {
            dtype: TARGET_TYPES[targets.kind],
            shape: targets.kind === 'classes' ? [rows.length] : [rows.length, targetSize],
            data: bytesOf(y),
          },
        ],
      ]),
    )
  }
}

/** Old class → class, in place. */
export function renumber(y: SampleRun['y'], count: number, order: Int32Array): void {
  for (let i = 0; i < count; i++) y[i] = order[y[i] ?? 0] ?? 0
}

/** Values from which a copy in one call is worth the view that it needs. */
const LONG_ROW = 64

/** As bytes or as words, whatever their meaning: a loop over arrays of one kind is several times as fast. */
function copyRows(from: SampleRun['x'] | SampleRun['y'], to: typeof from, rows: Uint32Array, size: number): void {
  if (size >= LONG_ROW)
    for (const [i, row] of rows.entries()) to.set(from.subarray(row * size, (row + 1) * size), i * size)
  else if (from instanceof Uint8Array) copyBytes(from, bytesOf(to), rows, size)
  else copyWords(wordsOf(from), wordsOf(to), rows, size)
}

function copyBytes(from: Uint8Array, to: Uint8Array, rows: Uint32Array, size: number): void {
  let at = 0
  for (const row of rows) for (let i = row * size; i < (row + 1) * size; i++) to[at++] = from[i] ?? 0
}

function copyWords(from: Uint32Array, to: Uint32Array, rows: Uint32Array, size: number): void {
  let at = 0
  for (const row of rows) for (let i = row * size; i < (row + 1) * size; i++) to[at++] = from[i] ?? 0
}

const TARGET_TYPES = { classes: 'I32', values: 'F32', labels: 'U8', tokens: 'I32' } as const

function emptyTargets(kind: TargetForm['kind'], length: number): SampleRun['y'] {
  if (kind === 'values') return new Float32Array(length)
  return kind === 'labels' ? new Uint8Array(length) : new Int32Array(length)
}

function elementBytes({ inputType }: SampleForm): number {
  return inputType === 'U8' ? 1 : Float32Array.BYTES_PER_ELEMENT
}

function wordsOf({ buffer, byteOffset, length }: SampleRun['x'] | SampleRun['y']): Uint32Array {
  return new Uint32Array(buffer as ArrayBuffer, byteOffset, length)
}

function bytesOf({ buffer, byteOffset, byteLength }: SampleRun['x'] | SampleRun['y']): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength)
}

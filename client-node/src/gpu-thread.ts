// The executor on one GPU of several, in a thread of its own with a Dawn of its own: a computation on one does not wait
// for what another one has the volunteer's thread do.
import { Worker } from 'node:worker_threads'
import { GridError } from '@starling-grid/protocol'
import type { AdapterDescription, Batch, Executor } from '@starling-grid/volunteer'
import type { BatchSums, EarlyRanges } from '@starling-grid/volunteer/mirrored'
import type { WantedExecutor } from './gpu-executor.ts'
import type { GpuSeat, OpeningTurns } from './gpu-seats.ts'
import { errorFrom, type FromGpuThread, threadErrorOf, type ToGpuThread } from './gpu-thread-messages.ts'

export interface GpuThreadParts {
  readonly seat: GpuSeat
  readonly turns: OpeningTurns
  /** for people */
  say(text: string): void
  /** absent: a thread of this process */
  readonly spawn?: (() => Worker) | undefined
}

interface ThreadCall {
  resolve(result: unknown): void
  reject(error: Error): void
  readonly onFinal: EarlyRanges['onFinal'] | undefined
}

/** @throws GridError what opening an adapter or planning a model throws; 'device-lost' when the thread ended */
export function openGpuThread(wanted: WantedExecutor, parts: GpuThreadParts): Promise<Executor> {
  return new Promise((resolve, reject) => {
    const thread: GpuThread = new GpuThread(wanted, parts, { opened: () => resolve(thread), refused: reject })
  })
}

class GpuThread implements Executor {
  readonly #worker: Worker
  readonly #wanted: WantedExecutor
  readonly #parts: GpuThreadParts
  readonly #opening: { opened(): void; refused(error: Error): void }
  readonly #calls = new Map<number, ThreadCall>()
  #lastCall = 0
  #adapter: AdapterDescription
  #endTurn: () => void = () => undefined
  /** why there is no thread any more */
  #end: Error | undefined

  constructor(wanted: WantedExecutor, parts: GpuThreadParts, opening: { opened(): void; refused(error: Error): void }) {
    const { name, vendor, software } = parts.seat.adapter
    this.#wanted = wanted
    this.#parts = parts
    this.#opening = opening
    this.#adapter = { name, vendor, software, executor: 'webgpu' }
    this.#worker = parts.spawn?.() ?? new Worker(new URL('./gpu-bootstrap.mjs', import.meta.url))
    this.#worker.on('message', this.#onMessage)
    this.#worker.on('error', (error: unknown) => this.#ended(error instanceof Error ? error.message : String(error)))
    this.#worker.on('exit', (code) => this.#ended(`it ended with code ${code}`))
    const { bounds, ...size } = wanted
    const limits = bounds && { maxBytes: bounds.maxBytes, precision: bounds.precision ?? 'f32' }
    const hasFrozen = bounds?.frozen !== undefined
    const sharesVariants = bounds?.variants !== undefined
    this.#post({ type: 'open', ...size, adapter: parts.seat.adapter, bounds: limits, hasFrozen, sharesVariants })
  }

  get adapter(): AdapterDescription {
    return this.#adapter
  }

  /** `flat`: memory that the thread shares, as it stays until the next call is answered. */
  loadParameters(flat: Float32Array): void {
    if (this.#end === undefined) this.#post({ type: 'load', parameters: flat })
  }

  /** `into`: memory that the thread shares. */
  gradient(batch: Batch, into: Float32Array, early?: EarlyRanges): Promise<BatchSums> {
    if (!(into.buffer instanceof SharedArrayBuffer))
      throw new Error('internal: expected shared memory for the gradient of a thread')
    const [sent, transfers] = copied(batch)
    const ranges = early?.ranges
    return this.#call((call) => this.#post({ type: 'gradient', call, batch: sent, into, ranges }, transfers), early)
  }

  evaluate(batch: Batch): Promise<BatchSums> {
    const [sent, transfers] = copied(batch)
    return this.#call((call) => this.#post({ type: 'evaluate', call, batch: sent }, transfers))
  }

  predict(x: Batch['x'], samples: number): Promise<Float32Array> {
    const sent = x.slice()
    return this.#call((call) => this.#post({ type: 'predict', call, x: sent, samples }, [sent.buffer]))
  }

  /** The thread ends when it has released its device. */
  destroy(): void {
    if (this.#end !== undefined) return
    this.#post({ type: 'close' })
    this.#worker.unref()
    this.#finish(new GridError('cancelled', `The executor on ${this.#adapter.name} was released.`))
  }

  #post(message: ToGpuThread, transfers: readonly ArrayBuffer[] = []): void {
    this.#worker.postMessage(message, transfers)
  }

  #call<T>(post: (call: number) => void, early?: EarlyRanges): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#end !== undefined) return reject(this.#end)
      const call = ++this.#lastCall
      this.#calls.set(call, { resolve: (result) => resolve(result as T), reject, onFinal: early?.onFinal })
      post(call)
    })
  }

  #onMessage = (message: FromGpuThread): void => {
    switch (message.type) {
      case 'wants-turn':
        return void this.#parts.turns.take(this.#parts.seat, () => this.#takeTurn())
      case 'turn-over':
        return this.#endTurn()
      case 'wants-frozen':
        return void this.#giveFrozen(message.name)
      case 'shares-variants':
        return void this.#shareVariants(message)
      case 'opened':
        this.#adapter = { ...message.adapter, name: this.#adapter.name }
        return this.#opening.opened()
      case 'refused':
        return this.#finish(errorFrom(message.error))
      case 'lost':
        return this.#wanted.bounds?.onDeviceLost()
      case 'say':
        return this.#parts.say(`${this.#adapter.name}: ${message.text}`)
      case 'final':
        return void this.#calls.get(message.call)?.onFinal?.(message.index)
      case 'answer':
        return this.#taken(message.call)?.resolve(message.result)
      case 'failed':
        return this.#taken(message.call)?.reject(errorFrom(message.error))
      default:
        return message satisfies never
    }
  }

  #takeTurn(): Promise<void> {
    if (this.#end !== undefined) return Promise.resolve()
    this.#post({ type: 'turn' })
    return new Promise((resolve) => {
      this.#endTurn = resolve
    })
  }

  async #giveFrozen(name: string): Promise<void> {
    const read = this.#wanted.bounds?.frozen?.read(name) ?? Promise.reject(new Error(`internal: no ${name} to give`))
    const values = await read.catch(threadErrorOf)
    if (this.#end === undefined) this.#post({ type: 'frozen', name, values })
  }

  async #shareVariants({
    call,
    adapterClass,
    report,
  }: Extract<FromGpuThread, { type: 'shares-variants' }>): Promise<void> {
    const asked = this.#wanted.bounds?.variants?.(adapterClass, report) ?? Promise.reject(new Error('internal: alone'))
    const answer = await asked.catch(threadErrorOf)
    if (this.#end === undefined) this.#post({ type: 'variants', call, answer })
  }

  #taken(call: number): ThreadCall | undefined {
    const found = this.#calls.get(call)
    this.#calls.delete(call)
    return found
  }

  #ended(why: string): void {
    if (this.#end === undefined) this.#wanted.bounds?.onDeviceLost()
    this.#finish(new GridError('device-lost', `The thread of ${this.#adapter.name} is gone: ${why}.`))
  }

  #finish(end: Error): void {
    if (this.#end !== undefined) return
    this.#end = end
    this.#endTurn()
    this.#opening.refused(end)
    for (const { reject } of this.#calls.values()) reject(end)
    this.#calls.clear()
  }
}

/** Views of a batch bring the whole of it along: a thread gets its slice, in memory that moves to it. */
function copied({ x, y, keys, ...batch }: Batch): readonly [Batch, ArrayBuffer[]] {
  const sent = { ...batch, x: x.slice(), y: y.slice(), ...(keys ? { keys: keys.slice() } : {}) }
  return [sent, [sent.x, sent.y, ...(sent.keys ? [sent.keys] : [])].map(({ buffer }) => buffer)]
}

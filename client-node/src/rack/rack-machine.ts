// The executor on another machine of the rack (`starling lend`), as this process sees it.
import { type ModelSpec, outputShape } from '@starling-grid/model'
import { describeError, GridError } from '@starling-grid/protocol'
import {
  errorOfTrouble,
  floatsIn,
  type FromMachine,
  type RackMessage,
  rackTroubleOf,
  readFromMachine,
  type ToMachine,
  writeRackMessage,
} from '@starling-grid/protocol/rack'
import type { AdapterDescription, Batch, Executor, ExecutorBounds } from '@starling-grid/volunteer'
import type { BatchSums, EarlyRanges } from '@starling-grid/volunteer/mirrored'
import type { WebSocket } from 'ws'
import { type MachineAddress, nameOf } from './machine-address.ts'
import { dialInRack, endWhenSilent } from './rack-socket.ts'

export interface WantedOnMachine {
  readonly spec: ModelSpec
  readonly blockSamples: number
  readonly bounds: ExecutorBounds | undefined
}

export interface RackMachineParts {
  readonly at: MachineAddress
  readonly key: Buffer
}

/** of the longest answer, a gradient or predictions: what one message of a socket can hold */
const MAX_ANSWER_BYTES = 2 ** 31 - 1

type Given = 'gradient' | 'evaluate' | 'predict'
type MachineAnswer = RackMessage<Extract<FromMachine, { type: 'answer' }>>

interface MachineCall {
  resolve(answer: MachineAnswer): void
  reject(error: Error): void
}

/**
 * @throws GridError 'link-lost' when it cannot be reached, 'grid-full' when it computes for another, or what opening an
 * executor there throws
 */
export async function openRackMachine(wanted: WantedOnMachine, parts: RackMachineParts): Promise<RackMachine> {
  const socket = await dialInRack(parts.at, { key: parts.key, maxBytes: MAX_ANSWER_BYTES })
  const machine = new RackMachine(socket, wanted, parts)
  await machine.opened
  return machine
}

export class RackMachine implements Executor {
  readonly #socket: WebSocket
  readonly #wanted: WantedOnMachine
  readonly #parts: RackMachineParts
  readonly #calls = new Map<number, MachineCall>()
  /** numbers of a prediction */
  readonly #outputs: number
  #lastCall = 0
  #adapter: AdapterDescription | undefined
  /** why it computes no more */
  #end: Error | undefined
  #onOpened: () => void = () => undefined
  #onEnd: (error: Error) => void = () => undefined
  /** rejects when it refuses the model, or is gone before */
  readonly opened: Promise<void>
  /** resolves when it computes no more */
  readonly gone: Promise<void>

  constructor(socket: WebSocket, wanted: WantedOnMachine, parts: RackMachineParts) {
    this.#socket = socket
    this.#wanted = wanted
    this.#outputs = outputShape(wanted.spec).reduce((product, size) => product * size, 1)
    this.#parts = parts
    const ended = new Promise<Error>((resolve) => {
      this.#onEnd = resolve
    })
    this.gone = ended.then(() => undefined)
    this.opened = new Promise((resolve, reject) => {
      this.#onOpened = resolve
      void ended.then(reject)
    })
    socket.on('message', (data, isBinary) => this.#received(data as Buffer, isBinary))
    socket.on('close', () => this.#finish(this.#lost('the connection to it broke')))
    endWhenSilent(socket)
    const { spec, blockSamples, bounds } = wanted
    this.#send({
      type: 'open',
      model: spec,
      blockSamples,
      ...(bounds?.precision === undefined ? {} : { precision: bounds.precision }),
      ...(bounds?.needsF16 === undefined ? {} : { needsF16: bounds.needsF16 }),
      hasFrozen: bounds?.frozen !== undefined,
    })
  }

  get adapter(): AdapterDescription {
    if (this.#adapter === undefined) throw new Error('internal: a machine that is not open yet')
    return this.#adapter
  }

  loadParameters(flat: Float32Array): void {
    this.#send({ type: 'load' }, { parameters: flat })
  }

  /** A gradient arrives whole: its pieces are told at once, and leave while other machines still compute theirs. */
  async gradient(batch: Batch, into: Float32Array, early?: EarlyRanges): Promise<BatchSums> {
    const answer = await this.#compute('gradient', batch)
    into.set(this.#fitting(() => floatsIn(answer, 'values', into.length)))
    for (const index of early?.ranges.keys() ?? []) early?.onFinal(index)
    return this.#fitting(() => sumsOf(answer))
  }

  async evaluate(batch: Batch): Promise<BatchSums> {
    const answer = await this.#compute('evaluate', batch)
    return this.#fitting(() => sumsOf(answer))
  }

  async predict(x: Batch['x'], samples: number): Promise<Float32Array> {
    const answer = await this.#call((call) => this.#send({ type: 'predict', call, samples }, { x }))
    return this.#fitting(() => floatsIn(answer, 'values', samples * this.#outputs))
  }

  destroy(): void {
    this.#finish(new GridError('cancelled', `The machine ${this.#name} was released.`))
  }

  /** A machine whose answers do not fit is gone, and its samples go to others. */
  #fitting<T>(read: () => T): T {
    try {
      return read()
    } catch (error) {
      const lost = this.#lost(describeError(error))
      this.#finish(lost)
      throw lost
    }
  }

  get #name(): string {
    return nameOf(this.#parts.at)
  }

  #compute(type: Exclude<Given, 'predict'>, { samples, groups, x, y, keys }: Batch): Promise<MachineAnswer> {
    const ofBlocks = groups === undefined ? {} : { groups: [...groups] }
    return this.#call((call) => this.#send({ type, call, samples, ...ofBlocks }, { x, y, keys }))
  }

  #call(order: (call: number) => void): Promise<MachineAnswer> {
    return new Promise((resolve, reject) => {
      if (this.#end !== undefined) return reject(this.#end)
      const call = ++this.#lastCall
      this.#calls.set(call, { resolve, reject })
      order(call)
    })
  }

  #send(message: ToMachine, vectors: Readonly<Record<string, Float32Array | Int32Array | undefined>> = {}): void {
    if (this.#end === undefined) this.#socket.send(writeRackMessage(message, vectors))
  }

  #received(data: Buffer, isBinary: boolean): void {
    try {
      if (!isBinary) throw new GridError('message-malformed', 'expected bytes, got text')
      this.#onMessage(readFromMachine(data))
    } catch (error) {
      this.#finish(this.#lost(describeError(error)))
    }
  }

  #onMessage({ text, vectors }: RackMessage<FromMachine>): void {
    switch (text.type) {
      case 'wants-frozen':
        return void this.#giveFrozen(text.name)
      case 'opened':
        this.#adapter = { ...text.adapter, name: `${text.adapter.name} at ${this.#name}` }
        return this.#onOpened()
      case 'refused':
        return this.#finish(errorOfTrouble(text.trouble))
      case 'answer':
        return this.#taken(text.call)?.resolve({ text, vectors })
      case 'failed':
        return this.#taken(text.call)?.reject(errorOfTrouble(text.trouble))
      default:
        return text satisfies never
    }
  }

  async #giveFrozen(name: string): Promise<void> {
    try {
      const values = await this.#wanted.bounds?.frozen?.read(name)
      this.#send({ type: 'frozen', name }, { values: values ?? new Float32Array(0) })
    } catch (error) {
      this.#send({ type: 'frozen', name, trouble: rackTroubleOf(error) })
    }
  }

  #taken(call: number): MachineCall | undefined {
    const found = this.#calls.get(call)
    this.#calls.delete(call)
    return found
  }

  #lost(why: string): GridError {
    return new GridError('device-lost', `The machine ${this.#name} is gone: ${why}.`)
  }

  #finish(end: Error): void {
    if (this.#end !== undefined) return
    this.#end = end
    this.#socket.close()
    this.#onEnd(end)
    for (const { reject } of this.#calls.values()) reject(end)
    this.#calls.clear()
  }
}

function sumsOf({ text: { sums } }: MachineAnswer): BatchSums {
  if (sums === undefined) throw new GridError('message-malformed', 'expected the sums of a batch, got none')
  const { lossSum, ...others } = sums
  return { ...others, lossSum: lossSum ?? Number.NaN } // JSON has no number for it
}

// A machine that computes for a volunteer of its rack (`starling lend`). For one at a time, model after model, until it
// is closed. What comes from the socket is checked before it computes.
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { describeError, GridError, SerialQueue } from '@starling-grid/protocol'
import {
  errorOfTrouble,
  floatsIn,
  type FromMachine,
  type RackMessage,
  rackTroubleOf,
  readToMachine,
  type ToMachine,
  vectorIn,
  writeRackMessage,
} from '@starling-grid/protocol/rack'
import type { Batch, Executor } from '@starling-grid/volunteer'
import type { WebSocket } from 'ws'
import type { ExecutorOpener } from '../executors.ts'
import { endWhenSilent, listenInRack } from './rack-socket.ts'

/** ms for what is computed when this machine is closed: a device that hangs never answers */
const END_MS = 2000

export interface LentMachineOptions {
  /** absent: all addresses of this machine */
  readonly host?: string | undefined
  /** 0: any that is free */
  readonly port: number
  readonly key: Buffer
  readonly openExecutor: ExecutorOpener
  /** of the device's memory, as its owner allows; no message is longer */
  readonly maxBytes: number
  /** for people */
  say(text: string): void
}

export interface LentMachine {
  readonly port: number
  close(): Promise<void>
}

type MachineOrder<T extends ToMachine['type']> = Extract<ToMachine, { type: T }>

/** @throws GridError 'port-taken' */
export async function lendMachine(options: LentMachineOptions): Promise<LentMachine> {
  let guest: RackGuest | undefined
  const server = await listenInRack({ host: options.host, port: options.port }, options, (socket, from) => {
    socket.on('error', () => undefined) // close follows
    if (guest !== undefined) return refuse(socket, from, options)
    const taken = new RackGuest(socket, from, options)
    guest = taken
    socket.once('close', () => {
      void taken.end().finally(() => {
        guest = undefined
      })
    })
  })
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      guest?.leave()
      server.closeAllConnections()
      await new Promise((resolve) => {
        server.close(resolve)
      })
      await ended(guest)
    },
  }
}

async function ended(guest: RackGuest | undefined): Promise<void> {
  const waiting = new AbortController()
  const tooLong = sleep(END_MS, undefined, { signal: waiting.signal }).catch(() => undefined)
  await Promise.race([guest?.end(), tooLong])
  waiting.abort()
}

function refuse(socket: WebSocket, from: string, { say }: LentMachineOptions): void {
  say(`refused ${from}: this machine computes for another volunteer`)
  const trouble = {
    code: 'grid-full',
    message: 'The machine computes for another volunteer; name it with one of them.',
  }
  socket.send(writeRackMessage({ type: 'refused', trouble }))
  socket.close()
}

/** The volunteer that this machine computes for, as long as its socket is open. */
class RackGuest {
  readonly #socket: WebSocket
  readonly #from: string
  readonly #options: LentMachineOptions
  /** orders are carried out as they come */
  readonly #queue = new SerialQueue()
  readonly #frozen = new Map<string, { resolve(values: Float32Array): void; reject(error: Error): void }>()
  #model: { readonly spec: ModelSpec; readonly executor: Executor } | undefined
  #isOver = false

  constructor(socket: WebSocket, from: string, options: LentMachineOptions) {
    this.#socket = socket
    this.#from = from
    this.#options = options
    options.say(`computes for ${from}`)
    endWhenSilent(socket)
    socket.on('message', (data, isBinary) => this.#received(data as Buffer, isBinary))
  }

  leave(): void {
    this.#socket.terminate()
  }

  /** The device is free again when this resolves. */
  async end(): Promise<void> {
    if (!this.#isOver) this.#options.say(`${this.#from} is gone; waits for the next`)
    this.#isOver = true
    const gone = new GridError('link-lost', 'The volunteer is gone.')
    for (const { reject } of this.#frozen.values()) reject(gone)
    this.#frozen.clear()
    await this.#queue.run(async () => {
      this.#model?.executor.destroy()
      this.#model = undefined
    })
  }

  #received(data: Buffer, isBinary: boolean): void {
    try {
      if (!isBinary) throw new GridError('message-malformed', 'expected bytes, got text')
      const message = readToMachine(data)
      if (message.text.type === 'frozen') return this.#tookFrozen(message, message.text)
      void this.#queue.run(() => this.#carryOut(message)).catch((error: unknown) => this.#broke(error))
    } catch (error) {
      this.#broke(error)
    }
  }

  /** What no volunteer sends ends the connection. */
  #broke(error: unknown): void {
    if (this.#isOver) return
    this.#options.say(`${this.#from} is sent away: ${describeError(error)}`)
    this.#send({ type: 'refused', trouble: rackTroubleOf(error) })
    this.#socket.close()
  }

  async #carryOut(message: RackMessage<ToMachine>): Promise<void> {
    if (this.#isOver) return
    const { text } = message
    if (text.type === 'open') return this.#open(text)
    if (text.type === 'frozen') return
    if (this.#model === undefined) throw new GridError('message-unexpected', `expected a model before "${text.type}"`)
    const { spec, executor } = this.#model
    if (text.type === 'load') return executor.loadParameters(floatsIn(message, 'parameters', parameterCount(spec)))
    try {
      const { sums, values } = await answerTo(message, text, this.#model)
      // JSON has no number for a loss that is none; it is null on the wire.
      this.#send({ type: 'answer', call: text.call, ...(sums === undefined ? {} : { sums }) }, values)
    } catch (error) {
      this.#send({ type: 'failed', call: text.call, trouble: rackTroubleOf(error) })
    }
  }

  async #open({
    model,
    blockSamples,
    precision = 'f32',
    needsF16 = false,
    hasFrozen,
  }: MachineOrder<'open'>): Promise<void> {
    this.#model?.executor.destroy()
    this.#model = undefined
    try {
      const spec = parseModelSpec(model)
      const { maxBytes, openExecutor } = this.#options
      const frozen = hasFrozen ? { frozen: { read: (name: string) => this.#frozenParameter(name) } } : {}
      // A device that is lost is opened again here; the volunteer waits for it meanwhile.
      const bounds = { maxBytes, precision, needsF16, ...frozen, onDeviceLost: () => undefined }
      const executor = await openExecutor(spec, blockSamples, bounds)
      if (this.#isOver) return executor.destroy()
      this.#model = { spec, executor }
      const { parts: _parts, ...adapter } = executor.adapter
      this.#send({ type: 'opened', adapter })
      this.#options.say(`computes ${spec.name} for ${this.#from} on ${adapter.name}`)
    } catch (error) {
      this.#send({ type: 'refused', trouble: rackTroubleOf(error) })
    }
  }

  #frozenParameter(name: string): Promise<Float32Array> {
    return new Promise((resolve, reject) => {
      this.#frozen.set(name, { resolve, reject })
      this.#send({ type: 'wants-frozen', name })
    })
  }

  #tookFrozen(message: RackMessage<ToMachine>, { name, trouble }: MachineOrder<'frozen'>): void {
    const waiting = this.#frozen.get(name)
    this.#frozen.delete(name)
    if (trouble !== undefined) return waiting?.reject(errorOfTrouble(trouble))
    const values = vectorIn(message, 'values')
    if (!(values instanceof Float32Array)) throw new GridError('message-malformed', 'expected floats as values')
    waiting?.resolve(values)
  }

  #send(message: FromMachine, values?: Float32Array): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(writeRackMessage(message, { values }))
  }
}

interface ComputedAnswer {
  readonly sums?: Extract<FromMachine, { type: 'answer' }>['sums']
  readonly values?: Float32Array
}

async function answerTo(
  message: RackMessage<ToMachine>,
  text: MachineOrder<'gradient'> | MachineOrder<'evaluate'> | MachineOrder<'predict'>,
  { spec, executor }: { readonly spec: ModelSpec; readonly executor: Executor },
): Promise<ComputedAnswer> {
  if (text.type === 'predict') return { values: await executor.predict(vectorIn(message, 'x'), text.samples) }
  const batch = batchIn(message, text)
  if (text.type === 'evaluate') return { sums: await executor.evaluate(batch) }
  const values = new Float32Array(parameterCount(spec))
  return { sums: await executor.gradient(batch, values), values }
}

/** The executor compares the vectors with its model. */
function batchIn(
  message: RackMessage<ToMachine>,
  { samples, groups }: Pick<MachineOrder<'gradient'>, 'samples' | 'groups'>,
): Batch {
  const keys = message.vectors.has('keys') ? vectorIn(message, 'keys') : undefined
  const all = groups?.reduce((sum, group) => sum + group, 0) ?? samples
  if (all !== samples || (keys !== undefined && (keys instanceof Float32Array || keys.length !== samples)))
    throw new GridError('message-malformed', `expected groups and keys of ${samples} samples, got others`)
  const [x, y] = [vectorIn(message, 'x'), vectorIn(message, 'y')]
  return {
    samples,
    x,
    y,
    ...(groups === undefined ? {} : { groups }),
    ...(keys === undefined ? {} : { keys }),
  } as Batch
}

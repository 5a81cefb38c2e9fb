// Shards in processes of their own, which dialled the coordinator (`starling ps`): who is there, and a pool over all of
// them. They are used from the next time that the server takes over a version.
import { type EncodedVector, encodedParts } from '@starling-grid/model'
import { type CancelTimer, CLOSE_POLICY, GridError, systemClock } from '@starling-grid/protocol'
import type { WebSocket } from 'ws'
import type { ServerMemory } from './memory.ts'
import { type KeyRange, keyRanges, layoutOfRange } from './ranges.ts'
import { vectorOf } from './shard-host.ts'
import type { AnswerTime, ShardPool } from './shard-pool.ts'
import { chunksOf, orderOf, type ShardOrder, type VectorName } from './shard-wire.ts'
import type { ShardCommand, ShardParts } from './shard.ts'

/**
 * ms without any progress after which a process counts as gone: the optimizer's step of 64 M parameters, ten times over
 */
const ANSWER_MS = 30_000

/** Processes that one parameter server may be cut into. */
const MAX_SHARDS = 64

export interface ShardSeat {
  readonly index: number
  readonly of: number
}

/** "0/2" is the first of two. @throws GridError 'message-malformed' */
export function readRange(text: string): ShardSeat {
  const [, index = '', of = ''] = /^(\d{1,2})\/(\d{1,2})$/.exec(text) ?? []
  const seat = { index: Number(index), of: Number(of) }
  if (of === '' || seat.of > MAX_SHARDS || seat.index >= seat.of)
    throw new GridError(
      'message-malformed',
      `expected a range I/N with 0 ≤ I < N ≤ ${MAX_SHARDS}, got "${text.slice(0, 20)}"`,
    )
  return seat
}

export class ShardProcesses {
  readonly #seats = new Map<string, RemoteShard>()
  readonly #time: Required<AnswerTime>

  constructor({ answerMs = ANSWER_MS, clock = systemClock }: AnswerTime = {}) {
    this.#time = { answerMs, clock }
  }

  /** @throws GridError 'duplicate' when another process has this range */
  admit(socket: WebSocket, { index, of }: ShardSeat): void {
    const seat = `${index}/${of}`
    if (this.#seats.has(seat))
      throw new GridError(
        'duplicate',
        `expected a free range, got ${seat}, which another process serves; start this one with another range`,
      )
    this.#seats.set(seat, new RemoteShard(socket, this.#time))
    socket.on('close', () => this.#seats.delete(seat))
  }

  /** Processes for all ranges, in their order; undefined while there are none or some are missing. */
  complete(): readonly RemoteShard[] | undefined {
    const sizes = [...this.#seats.keys()].map((seat) => Number(seat.split('/')[1])).toSorted((a, b) => b - a)
    for (const of of new Set(sizes)) {
      const shards = Array.from({ length: of }, (_, i) => this.#seats.get(`${i}/${of}`))
      if (shards.every((shard) => shard !== undefined && !shard.taken))
        return shards.filter((shard) => shard !== undefined)
    }
    return undefined
  }
}

export interface RemoteParts extends Omit<ShardParts, 'range'> {
  readonly compensated: boolean
}

/** The vectors of `memory` are the coordinator's copies: what volunteers pull and what checkpoints hold. */
export async function remoteShards(
  processes: readonly RemoteShard[],
  { rule, memory, compensated }: RemoteParts,
): Promise<ShardPool> {
  const ranges = keyRanges(rule.layout.total, processes.length)
  const shards = processes.slice(0, ranges.length)
  const each = <T>(deed: (shard: RemoteShard, range: KeyRange) => Promise<T>): Promise<T[]> =>
    Promise.all(ranges.map((range, i) => deed(shards[i] ?? raise(), range)))
  for (const shard of shards) shard.taken = true
  const pool: ShardPool = {
    run: (command) => each((shard, range) => runOn(shard, { command, range, memory })),
    take: async (encoded) =>
      void (await each((shard, range) =>
        encoded === undefined ? shard.write(memory, { of: 'gradient' }, range) : shard.decode(encoded, range),
      )),
    collect: async (state, square) =>
      void (await each((shard, range) =>
        Promise.all(stateNames(memory, state, square).map((name) => shard.read(memory, name, range))),
      )),
    stop: async () => {
      for (const shard of shards) shard.taken = false
    },
  }
  try {
    await each((shard, range) =>
      shard.ask({
        type: 'setup',
        optimizer: rule.optimizer as Setup['optimizer'],
        versions: memory.versions.length,
        compensated,
        ...(rule.rounds === true ? { rounds: true } : {}),
        layout: layoutFor(layoutOfRange(rule.layout, range)),
      }),
    )
    return pool
  } catch (error) {
    await pool.stop()
    throw error
  }
}

function stateNames({ slots, square }: ServerMemory, state: 0 | 1, when: 'now' | 'at head'): VectorName[] {
  const own = slots[state].map((_, index): VectorName => ({ of: 'slot', state, index }))
  return square === undefined ? own : [...own, { of: 'square', atHead: when === 'at head' }]
}

/** Its optimizer is the job's own, which passed this very schema. */
type Setup = Extract<ShardOrder, { type: 'setup' }>

function layoutFor({ total, trained, entries }: ReturnType<typeof layoutOfRange>): Setup['layout'] {
  return {
    total,
    trained,
    entries: entries.map(({ name, shape, offset, length, kind, momentum }) => ({
      name,
      shape: [...shape],
      offset,
      length,
      kind,
      ...(momentum === undefined ? {} : { momentum }),
    })),
  }
}

/** A command with the vectors that it reads and makes. */
async function runOn(
  shard: RemoteShard,
  {
    command,
    range,
    memory,
  }: { readonly command: ShardCommand; readonly range: KeyRange; readonly memory: ServerMemory },
): Promise<Float64Array> {
  if (command.type === 'load') {
    await shard.write(memory, { of: 'version', index: 0 }, range)
    for (const index of memory.slots[0].keys()) await shard.write(memory, { of: 'slot', state: 0, index }, range)
    if (memory.square !== undefined) await shard.write(memory, { of: 'square', atHead: false }, range)
  }
  const answer = await shard.ask(orderOf(command))
  if (command.type === 'apply') await shard.read(memory, { of: 'version', index: command.to }, range)
  return new Float64Array(answer.slice().buffer)
}

interface WaitingProcess {
  readonly resolve: (answer: Uint8Array) => void
  readonly reject: (error: Error) => void
}

export class RemoteShard {
  readonly #socket: WebSocket
  /** in the order of their orders */
  readonly #waiting: WaitingProcess[] = []
  readonly #time: Required<AnswerTime>
  #cancelPatience: CancelTimer = () => undefined
  #failure: Error | undefined
  /** by a run */
  taken = false

  constructor(socket: WebSocket, time: Required<AnswerTime>) {
    this.#socket = socket
    this.#time = time
    socket.on('message', (data, isBinary) => {
      const waiting = this.#waiting.shift()
      this.#expect(this.#waiting.length > 0)
      if (isBinary && data instanceof Buffer && waiting !== undefined) waiting.resolve(new Uint8Array(data))
      else socket.close(CLOSE_POLICY, 'an answer without a request')
    })
    socket.on('close', () => {
      this.#expect(false)
      this.#failure = new Error('expected all processes of the parameter server, got one fewer')
      for (const { reject } of this.#waiting.splice(0)) reject(this.#failure)
    })
  }

  async ask(order: ShardOrder): Promise<Uint8Array> {
    if (this.#failure !== undefined) throw this.#failure
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject })
      this.#expect(true)
      this.#socket.send(JSON.stringify(order))
    })
  }

  /** Our part of a vector → the shard's. */
  async write(memory: ServerMemory, vector: VectorName, range: KeyRange): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    const own = partOf(memory, vector, range)
    for (const { start, count } of chunksOf(own.length))
      await this.#bring({ type: 'write', vector, start, count }, own.slice(start, start + count))
  }

  /** Its part of a push, as it came: decoded there. */
  async decode(pushed: EncodedVector, range: KeyRange): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    for (const { bytes, encoding, length, skip, start, count } of encodedParts(pushed, range))
      await this.#bring({ type: 'decode', encoding, length, skip, start: start - range.start, count }, bytes)
  }

  /** An order and the bytes that it announces; resolves when they have left. */
  async #bring(order: ShardOrder, bytes: Uint8Array | Float32Array): Promise<void> {
    this.#expect(true)
    this.#socket.send(JSON.stringify(order))
    await new Promise<void>((resolve, reject) =>
      this.#socket.send(bytes, (error) => (error ? reject(error) : resolve())),
    )
  }

  /** A process that hangs, or whose network is gone, is not waited for. */
  #expect(progress: boolean): void {
    this.#cancelPatience()
    const { clock, answerMs } = this.#time
    if (progress) this.#cancelPatience = clock.timer(answerMs, () => this.#socket.terminate())
  }

  /** The shard's vector → our part of it. */
  async read(memory: ServerMemory, vector: VectorName, range: KeyRange): Promise<void> {
    const own = partOf(memory, vector, range)
    await Promise.all(
      chunksOf(own.length).map(async ({ start, count }) => {
        const bytes = await this.ask({ type: 'read', vector, start, count })
        if (bytes.byteLength !== count * own.BYTES_PER_ELEMENT)
          throw new Error(
            `expected ${count} elements of a process of the parameter server, got ${bytes.byteLength} bytes`,
          )
        own.set(new Float32Array(bytes.slice().buffer), start)
      }),
    )
  }
}

/** Slots end where the trained elements end. */
function partOf(memory: ServerMemory, vector: VectorName, { start, end }: KeyRange): Float32Array {
  const whole = vectorOf(memory, vector) ?? raise()
  return whole.subarray(Math.min(start, whole.length), Math.min(end, whole.length))
}

function raise(): never {
  throw new Error('internal: a range without its process or vector')
}

// Collective operations for programs, in the words of torch.distributed. Every rank of a group calls the same
// operations in the same order. Each call returns a promise, and several may be in flight at once. docs/COLLECTIVES.md
// is the manual. What happens on the wire is in exchange.ts; moves.ts decides which rank sends what to which rank.
import { GridError, SILENCE_MS, type Clock, systemClock } from '@starling-grid/protocol'
import type { Movable } from '@starling-grid/protocol/floats'
import { plain } from '../codec/encoding.ts'
import {
  copyOf,
  emptyLike,
  finish,
  type Numbers,
  type ReduceOp,
  requireLength,
  requireReducible,
} from '../codec/numbers.ts'
import { segmentStart } from '../reduce/schedule.ts'
import { allReduce, type AllReduceOptions } from './all-reduce.ts'
import { type AlgorithmChoice, chooseAlgorithm, type LinkQuality } from './choose-algorithm.ts'
import { ExchangeHub } from './exchange-hub.ts'
import type { Segment } from './exchange.ts'
import { type AlgorithmOptions, type CallOptions, cut, fingerprint, GroupRunner } from './group-runner.ts'
import { measureLinks } from './measure-links.ts'
import type { Mesh } from './mesh.ts'
import type { Algorithm, Collective } from './moves.ts'

/** Ranks of one mesh: each rank computes the moves of all. */
const MAX_RANKS = 256

export interface CommunicatorOptions {
  /** milliseconds without a sign of life after which a rank counts as lost (default 5,000) */
  readonly silenceMs?: number
  /** default: the machine's */
  readonly clock?: Clock
}

export interface RootOptions extends AlgorithmOptions {
  /** default 0 */
  readonly root?: number
}

export interface ReduceOptions extends AlgorithmOptions {
  /** default 'sum' */
  readonly op?: ReduceOp
}

/**
 * @example const group = openCommunicator(networkMesh(network, members, rank)); const sum = await
 * group.allReduce(gradient)
 */
export function openCommunicator(
  mesh: Mesh,
  { silenceMs = SILENCE_MS, clock = systemClock }: CommunicatorOptions = {},
): Communicator {
  if (!(mesh.size >= 1 && mesh.size <= MAX_RANKS))
    throw new GridError('usage', `expected a group of 1 to ${MAX_RANKS} ranks, got ${mesh.size}`)
  const hub = new ExchangeHub(mesh, { clock, silenceMs })
  hub.links.start()
  return new Communicator(
    hub,
    Array.from({ length: mesh.size }, (_, rank) => rank),
  )
}

export class Communicator {
  readonly rank: number
  readonly size: number
  readonly #hub: ExchangeHub
  readonly #runner: GroupRunner
  readonly #subgroups = new Map<string, number>()

  /** Made by openCommunicator and subgroup. */
  constructor(hub: ExchangeHub, ranks: readonly number[], group = 1) {
    this.#hub = hub
    this.#runner = new GroupRunner(hub, ranks, group)
    this.rank = this.#runner.rank
    this.size = ranks.length
  }

  /** The slowest link, as `measure` found it; a usual one before. */
  get link(): LinkQuality {
    return this.#runner.link
  }

  /** Bytes that this rank has sent, with headers and heartbeats, in all groups of its mesh. */
  get bytesSent(): number {
    return this.#hub.links.bytesSent
  }

  /**
   * To one rank. Messages between two ranks arrive in the order of the calls; resolves when the numbers may change
   * again.
   */
  async send(values: Movable, to: number, options: CallOptions = {}): Promise<void> {
    this.#requireOther(to)
    await this.#runner.message('send', values, to, options)
  }

  /** From one rank, which sends as many numbers of the same kind. */
  async recv<T extends Movable>(into: T, from: number, options: CallOptions = {}): Promise<T> {
    this.#requireOther(from)
    await this.#runner.message('receive', into, from, options)
    return into
  }

  /** The root's values, in place, on every rank. */
  async broadcast<T extends Movable>(values: T, { root = 0, ...options }: RootOptions = {}): Promise<T> {
    this.#requireRank(root)
    const algorithm = this.#runner.pick('broadcast', values.byteLength, options)
    await this.#runner.run(
      { collective: 'broadcast', algorithm, root, length: values.length, codecs: plain(values), segment: cut(values) },
      options,
    )
    return values
  }

  /** The reduced values on the root, undefined on the others. */
  async reduce<T extends Numbers>(
    values: T,
    { root = 0, op = 'sum', ...options }: ReduceOptions & RootOptions = {},
  ): Promise<T | undefined> {
    this.#requireRank(root)
    requireReducible(op, values)
    const algorithm = this.#runner.pick('reduce', values.byteLength, options)
    const sum = copyOf(values)
    await this.#runner.run(
      { collective: 'reduce', algorithm, root, op, length: sum.length, codecs: plain(sum), segment: cut(sum) },
      options,
    )
    if (this.rank !== root) return undefined
    finish(op, sum, this.size)
    return sum
  }

  /** The reduced values on every rank: bit-identical on all, whatever the algorithm and the encoding. */
  allReduce<T extends Numbers>(values: T, options: AllReduceOptions<T> = {}): Promise<T> {
    return allReduce(this.#runner, values, options)
  }

  /** This rank's part of the reduced values: numbers `partStart(length, rank)` up to those of the next rank. */
  async reduceScatter<T extends Numbers>(values: T, { op = 'sum', ...options }: ReduceOptions = {}): Promise<T> {
    requireReducible(op, values)
    const algorithm = this.#runner.pick('reduceScatter', values.byteLength, options)
    const sums = copyOf(values)
    await this.#runner.run(
      { collective: 'reduceScatter', algorithm, op, length: sums.length, codecs: plain(sums), segment: cut(sums) },
      options,
    )
    const own = sums.slice(this.partStart(sums.length, this.rank), this.partStart(sums.length, this.rank + 1)) as T
    finish(op, own, this.size)
    return own
  }

  /** The first of `length` numbers that a reduce-scatter leaves with `rank`. */
  partStart(length: number, rank: number): number {
    return segmentStart(length, this.size, rank)
  }

  /** Every rank's values, one after the other, on every rank. */
  allGather<T extends Movable>(values: T, options: AlgorithmOptions = {}): Promise<T> {
    return this.#runner.allGather(values, options)
  }

  /** Every rank's values, one after the other, on the root; undefined on the others. */
  async gather<T extends Movable>(values: T, { root = 0, ...options }: RootOptions = {}): Promise<T | undefined> {
    this.#requireRank(root)
    const length = values.length * this.size
    const all = this.rank === root ? emptyLike(values, length) : undefined
    all?.set(values, values.length * root)
    const segment = all === undefined ? () => ({ values, start: values.length * this.rank }) : cut(all)
    await this.#runner.run(
      { collective: 'gather', algorithm: 'star', root, length, codecs: plain(values), segment },
      options,
    )
    return all
  }

  /** Part `rank` of the root's `values`, which is as long as all the ranks' `into` together. */
  async scatter<T extends Movable>(
    into: T,
    { root = 0, values, ...options }: RootOptions & { readonly values?: T } = {},
  ): Promise<T> {
    this.#requireRank(root)
    const length = into.length * this.size
    if (this.rank === root) requireLength('values', values ?? emptyLike(into, 0), length)
    const segment =
      values === undefined || this.rank !== root
        ? () => ({ values: into, start: into.length * this.rank })
        : cut(values)
    if (values !== undefined && this.rank === root)
      into.set(values.subarray(into.length * root, into.length * (root + 1)))
    await this.#runner.run(
      { collective: 'scatter', algorithm: 'star', root, length, codecs: plain(into), segment },
      options,
    )
    return into
  }

  /** Part b of `values` goes to rank b; the result holds what came from rank a as part a. */
  async allToAll<T extends Movable>(values: T, options: CallOptions = {}): Promise<T> {
    if (values.length % this.size !== 0)
      throw new GridError(
        'usage',
        `expected a multiple of ${this.size} numbers, as many for each rank, got ${values.length}`,
      )
    const part = values.length / this.size
    const received = emptyLike(values, values.length)
    received.set(values.subarray(part * this.rank, part * (this.rank + 1)), part * this.rank)
    const segment = (index: number): Segment => {
      const [from, to] = [Math.floor(index / this.size), index % this.size]
      const [array, at] = from === this.rank ? [values, to] : [received, from]
      return { values: array.subarray(part * at, part * (at + 1)), start: part * index }
    }
    await this.#runner.run(
      { collective: 'allToAll', algorithm: 'direct', length: values.length, codecs: plain(values), segment },
      options,
    )
    return received
  }

  /** Resolves when every rank has come here. */
  async barrier(options: CallOptions = {}): Promise<void> {
    await this.allReduce(new Int32Array(1), { ...options, op: 'max', algorithm: 'recursive-doubling' })
  }

  /**
   * A group of some of the ranks, in this order. Called by these ranks, in the same order as other subgroups of theirs.
   */
  subgroup(ranks: readonly number[]): Communicator {
    for (const rank of ranks) this.#requireRank(rank)
    if (!ranks.includes(this.rank) || new Set(ranks).size !== ranks.length)
      throw new GridError(
        'usage',
        `expected each rank of a subgroup once, rank ${this.rank} among them, got ${ranks.join(', ')}`,
      )
    const key = ranks.join()
    const made = this.#subgroups.get(key) ?? 0
    this.#subgroups.set(key, made + 1)
    const group = new Communicator(
      this.#hub,
      ranks.map((rank) => this.#runner.ranks[rank] ?? -1),
      fingerprint(`${this.#runner.group} ${key} ${made}`),
    )
    group.#runner.link = this.link
    return group
  }

  /** Measures the links, with all ranks, and lets `auto` choose by them from here on. */
  async measure(): Promise<LinkQuality> {
    if (this.size > 1) this.#runner.link = await measureLinks(this, this.#hub.clock)
    return this.link
  }

  /** What `auto` takes for a vector of so many bytes, and why. */
  choose(collective: Collective, bytes: number, among?: readonly Algorithm[]): AlgorithmChoice {
    return chooseAlgorithm({
      collective,
      bytes,
      size: this.size,
      link: this.link,
      ...(among === undefined ? {} : { among }),
    })
  }

  /** Leaves the mesh, with all its groups. Ranks that still wait for this one fail: come to a `barrier` first. */
  close(): Promise<void> {
    return this.#hub.stop()
  }

  #requireRank(rank: number): void {
    if (!(Number.isInteger(rank) && rank >= 0 && rank < this.size))
      throw new GridError('usage', `expected a rank from 0 to ${this.size - 1}, got ${rank}`)
  }

  #requireOther(rank: number): void {
    this.#requireRank(rank)
    if (rank === this.rank) throw new GridError('usage', `expected another rank as the receiver, got this one, ${rank}`)
  }
}

// Runs one group's operations: takes their places in line, makes their exchanges, hands them to the hub. Between the
// words that programs use (communicator.ts) and the machine that moves numbers (exchange.ts).
import { GridError } from '@starling-grid/protocol'
import type { Movable } from '@starling-grid/protocol/floats'
import { type Codecs, plain } from '../codec/encoding.ts'
import { emptyLike, type ReduceOp } from '../codec/numbers.ts'
import { segmentStart } from '../reduce/schedule.ts'
import { CHUNK_BYTES, chooseAlgorithm, type LinkQuality, USUAL_LINK } from './choose-algorithm.ts'
import type { ExchangeHub } from './exchange-hub.ts'
import { CollectiveExchange, type Segment } from './exchange.ts'
import { type Algorithm, algorithmsOf, type Collective, scheduleOf } from './moves.ts'
import { type Step, stepsOf } from './steps.ts'
import type { Ticket } from './ticket.ts'

/** Milliseconds without progress after which an operation fails: a dead rank is noticed sooner, by its silence. */
const TIMEOUT_MS = 60_000
/** The longest that timers can wait: 24 days. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1
/** Numbers of a chunk before encoding. */
const CHUNK_NUMBERS = CHUNK_BYTES / 4

export interface CallOptions {
  /** gives the operation up here; the other ranks are told */
  readonly signal?: AbortSignal
  /** without progress (default 60,000) */
  readonly timeoutMs?: number
}

export interface AlgorithmOptions extends CallOptions {
  /** 'auto' when absent: chosen by size, ranks and measured links */
  readonly algorithm?: Algorithm | 'auto'
}

export interface GroupTask {
  readonly collective: Collective
  readonly algorithm: Algorithm
  readonly root?: number
  readonly op?: ReduceOp
  /** of everything that members must agree on, besides */
  readonly length: number
  readonly codecs: Codecs
  /** segment `index` of `segments` */
  readonly segment: (index: number, segments: number) => Segment
  readonly residual?: Float32Array | undefined
}

export class GroupRunner {
  readonly group: number
  /** group rank → mesh rank */
  readonly ranks: readonly number[]
  link: LinkQuality = USUAL_LINK
  readonly #hub: ExchangeHub
  readonly #steps = new Map<string, Step[][]>()

  constructor(hub: ExchangeHub, ranks: readonly number[], group: number) {
    this.#hub = hub
    this.ranks = ranks
    this.group = group
  }

  get rank(): number {
    return this.ranks.indexOf(this.#hub.links.rank)
  }

  /** The next place in the group's line; operations that come in several parts take theirs at once. */
  ticket(): Ticket {
    return this.#hub.take({ group: this.group, kind: 'group', peer: -1 })
  }

  giveBack(ticket: Ticket): void {
    this.#hub.giveBack(ticket)
  }

  /** @throws GridError 'unsupported' */
  pick(
    collective: Collective,
    bytes: number,
    { algorithm = 'auto' }: AlgorithmOptions,
    among?: readonly Algorithm[],
  ): Algorithm {
    if (
      algorithm !== 'auto' &&
      algorithmsOf(collective).includes(algorithm) &&
      (among ?? [algorithm]).includes(algorithm)
    )
      return algorithm
    if (algorithm !== 'auto')
      throw new GridError(
        'unsupported',
        `expected ${(among ?? algorithmsOf(collective)).join(' or ')} for this ${collective}, got ${algorithm}`,
      )
    return chooseAlgorithm({
      collective,
      bytes,
      size: this.ranks.length,
      link: this.link,
      ...(among === undefined ? {} : { among }),
    }).algorithm
  }

  run(task: GroupTask, options: CallOptions, ticket = this.ticket()): Promise<void> {
    const { collective, algorithm, root = 0, op = 'sum', length, codecs, segment, residual } = task
    const steps = this.#stepsOf(collective, algorithm, root)
    const agreed = [collective, algorithm, root, op, length, codecs.partial.name, codecs.final.name].join(' ')
    const exchange = new CollectiveExchange({
      ...this.#address(ticket, agreed),
      steps,
      segment: (index) => segment(index, steps.length),
      ...codecs,
      op,
      residual,
    })
    return this.#start(collective, exchange, { ticket, options })
  }

  async allGather<T extends Movable>(values: T, options: AlgorithmOptions): Promise<T> {
    const all = emptyLike(values, values.length * this.ranks.length)
    all.set(values, values.length * this.rank)
    const algorithm = this.pick('allGather', all.byteLength, options)
    await this.run(
      { collective: 'allGather', algorithm, length: all.length, codecs: plain(all), segment: cut(all) },
      options,
    )
    return all
  }

  /** One side of a message between two ranks. */
  message(kind: 'send' | 'receive', values: Movable, peer: number, options: CallOptions): Promise<void> {
    const ticket = this.#hub.take({
      group: this.group,
      kind: kind === 'send' ? 'to' : 'from',
      peer: this.ranks[peer] ?? -1,
    })
    const codecs = plain(values)
    const exchange = new CollectiveExchange({
      ...this.#address(ticket, `message ${codecs.final.name} ${values.length}`),
      steps: [[{ kind, peer, round: 0, effect: 'store' }]],
      segment: () => ({ values, start: 0 }),
      ...codecs,
      op: 'sum',
      pair: true,
    })
    return this.#start(kind, exchange, { ticket, options })
  }

  #start(
    name: string,
    exchange: CollectiveExchange,
    { ticket, options }: { readonly ticket: Ticket; readonly options: CallOptions },
  ): Promise<void> {
    const { signal, timeoutMs = TIMEOUT_MS } = options
    if (!(timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS))
      throw new GridError('usage', `expected a time-out above 0 and at most ${MAX_TIMEOUT_MS} ms, got ${timeoutMs}`)
    return this.#hub.run({ ticket, name: `${name} ${ticket.sequence}`, exchange, ranks: this.ranks, timeoutMs, signal })
  }

  #address(
    { group, sequence }: Ticket,
    agreed: string,
  ): {
    readonly group: number
    readonly sequence: number
    readonly fingerprint: number
    readonly chunkNumbers: number
  } {
    return { group, sequence, fingerprint: fingerprint(agreed), chunkNumbers: CHUNK_NUMBERS }
  }

  #stepsOf(collective: Collective, algorithm: Algorithm, root: number): Step[][] {
    const key = `${collective} ${algorithm} ${root}`
    const steps =
      this.#steps.get(key) ?? stepsOf(scheduleOf({ collective, algorithm, size: this.ranks.length, root }), this.rank)
    this.#steps.set(key, steps)
    return steps
  }
}

/** A vector cut into equal segments. */
export function cut(values: Movable): GroupTask['segment'] {
  return (index, segments) => {
    const start = segmentStart(values.length, segments, index)
    return { values: values.subarray(start, segmentStart(values.length, segments, index + 1)), start }
  }
}

/** 32 bits of a text, never 0 (FNV-1a): to notice a mistake, not to stop an attack. */
export function fingerprint(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0 || 1
}

// One collective operation as a machine of events: frames in, frames out, no I/O, no clock (moves.ts has the sources).
// It works chunk by chunk: a chunk is passed on as soon as it was added, so that hops overlap. What a peer sends is
// checked against the one thing that may come from it next before a byte is used. Final bytes are forwarded unchanged.
import { type Frame, FRAME_HEADER_BYTES, type FrameType, isGridError, packFrame } from '@starling-grid/protocol'
import type { Codec, Movable } from '@starling-grid/protocol/floats'
import { combine, type Numbers, type ReduceOp } from '../codec/numbers.ts'
import { NUMBER_BYTES } from '../link/frame-order.ts'
import { RankFailure } from '../reduce/rank-failure.ts'
import { letGo } from './let-go.ts'
import type { Step } from './steps.ts'

export interface Segment {
  readonly values: Movable
  /** place of its first number among the numbers of all segments: equal on all ranks */
  readonly start: number
}

export interface ExchangeOptions {
  /** which operation of which group this is */
  readonly group: number
  readonly sequence: number
  /** of everything that members must agree on */
  readonly fingerprint: number
  /** for each segment, in order */
  readonly steps: readonly (readonly Step[])[]
  /** asked for segments that have steps here; the numbers are read and written in place */
  readonly segment: (index: number) => Segment
  readonly chunkNumbers: number
  /** what is still to be added, and what is final */
  readonly partial: Codec
  readonly final: Codec
  readonly op: ReduceOp
  /** receives, at each number's place, what encoding lost of it */
  readonly residual?: Float32Array | undefined
  /** a send that one other rank waits for, not an operation of the whole group */
  readonly pair?: boolean
}

/** How a frame becomes bytes: into new memory, or into memory that is used again (FramePacker). */
export type PackFrame = (frame: Frame) => Uint8Array<ArrayBuffer>

interface ChunkMoves {
  readonly start: number
  readonly values: Movable
  readonly steps: readonly Step[]
  /** the first step that has not begun */
  cursor: number
  /** sends that have begun and not left; receives wait for them, since they may change what has to leave */
  unsent: number
  readonly early: Map<Step, Uint8Array>
  /** encoded bytes of the final values, for those who get them from here */
  wire: Uint8Array | undefined
  finished: boolean
}

interface ChunkSending {
  readonly chunk: ChunkMoves
  readonly step: Step
}

/**
 * @example for (let frame = exchange.nextFrame(peer); frame !== undefined; frame = exchange.nextFrame(peer)) await
 * link.send(frame)
 */
export class CollectiveExchange {
  /** all ranks that this one sends to or receives from */
  readonly peers: readonly number[]
  readonly #options: ExchangeOptions
  readonly #chunks = new Map<number, ChunkMoves>()
  readonly #outbox = new Map<number, ChunkSending[]>()
  readonly #bytesTo = new Map<number, number>()
  readonly #bytesFrom = new Map<number, number>()
  #unfinished = 0

  constructor(options: ExchangeOptions) {
    this.#options = options
    options.steps.forEach((steps, index) => {
      if (steps.length > 0) this.#cut(options.segment(index), steps)
    })
    this.peers = [...new Set([...this.#bytesTo.keys(), ...this.#bytesFrom.keys()])]
    this.#unfinished = this.#chunks.size
    for (const chunk of this.#chunks.values()) this.#advance(chunk)
  }

  /** Everything came and everything left. */
  get done(): boolean {
    return this.#unfinished === 0
  }

  /** Payload bytes that go to `peer` in the whole operation. */
  bytesTo(peer: number): number {
    return this.#bytesTo.get(peer) ?? 0
  }

  bytesFrom(peer: number): number {
    return this.#bytesFrom.get(peer) ?? 0
  }

  /** The ranks without which the operation stands still now. */
  waitsFor(): Set<number> {
    const ranks = new Set<number>()
    for (const { finished, unsent, steps, cursor } of this.#chunks.values()) {
      const next = steps[cursor]
      if (!finished && unsent === 0 && next !== undefined) ranks.add(next.peer)
    }
    for (const [peer, sendings] of this.#outbox) if (sendings.length > 0) ranks.add(peer)
    return ranks
  }

  /** Something is still to come from `peer` or to go to it. */
  needs(peer: number): boolean {
    for (const { finished, steps, cursor, early } of this.#chunks.values())
      if (!finished && steps.some((step, i) => i >= cursor && step.peer === peer && !early.has(step))) return true
    return (this.#outbox.get(peer)?.length ?? 0) > 0
  }

  /**
   * The next frame for `peer`, packed: the numbers may change from here on. Undefined when there is nothing to send to
   * it now.
   */
  nextFrame(peer: number, pack: PackFrame = packFrame): Uint8Array<ArrayBuffer> | undefined {
    const sending = this.#outbox.get(peer)?.shift()
    if (sending === undefined) return undefined
    const { chunk, step } = sending
    const { group, sequence, fingerprint } = this.#options
    const frame = pack({
      type: this.#frameType(step),
      generation: group,
      step: sequence,
      bucket: fingerprint,
      hop: step.round,
      offset: chunk.start,
      payload: this.#payload(chunk, step),
    })
    chunk.unsent--
    this.#advance(chunk)
    return frame
  }

  /**
   * Takes a frame of this operation, and with it its payload's memory, which is not to be read again.
   * @throws RankFailure 'message-malformed' or 'message-unexpected'; the operation is over then
   */
  accept(peer: number, frame: Frame): void {
    if (frame.bucket !== this.#options.fingerprint)
      throw new RankFailure(
        peer,
        'message-unexpected',
        'runs another operation here, or this one with another length, algorithm or encoding',
      )
    const chunk = this.#chunks.get(frame.offset)
    if (chunk === undefined)
      throw new RankFailure(peer, 'message-malformed', `sent a chunk from number ${frame.offset} on, where none begins`)
    const step = chunk.steps.find(
      (one, i) => i >= chunk.cursor && isAnswered(one, peer, frame.hop) && !chunk.early.has(one),
    )
    if (step === undefined || this.#frameType(step) !== frame.type)
      throw new RankFailure(
        peer,
        'message-unexpected',
        `sent a ${frame.type} frame for number ${frame.offset} in round ${frame.hop}, where none is due`,
      )
    const expected = this.#codec(step).bytes(chunk.values.length)
    if (frame.payload.byteLength !== expected)
      throw new RankFailure(
        peer,
        'message-malformed',
        `sent ${frame.payload.byteLength} bytes for the chunk at number ${frame.offset}, which has ${expected}`,
      )
    chunk.early.set(step, frame.payload)
    this.#advance(chunk)
  }

  #cut({ values, start }: Segment, steps: readonly Step[]): void {
    const { chunkNumbers } = this.#options
    for (let from = 0; from < values.length; from += chunkNumbers) {
      const part = values.subarray(from, Math.min(from + chunkNumbers, values.length))
      this.#chunks.set(start + from, {
        start: start + from,
        values: part,
        steps,
        cursor: 0,
        unsent: 0,
        early: new Map(),
        wire: undefined,
        finished: false,
      })
      for (const step of steps) this.#count(step, part.length)
    }
  }

  #count(step: Step, numbers: number): void {
    const bytes = step.kind === 'send' ? this.#bytesTo : this.#bytesFrom
    bytes.set(step.peer, (bytes.get(step.peer) ?? 0) + this.#codec(step).bytes(numbers))
  }

  /** Goes through the chunk's steps until one has to wait. */
  #advance(chunk: ChunkMoves): void {
    for (let step = chunk.steps[chunk.cursor]; step !== undefined; step = chunk.steps[chunk.cursor]) {
      if (step.kind === 'send') this.#queue(chunk, step)
      else if (chunk.unsent > 0 || !this.#receive(chunk, step)) break
      chunk.cursor++
    }
    if (chunk.finished || chunk.unsent > 0 || chunk.cursor < chunk.steps.length) return
    chunk.finished = true
    chunk.wire = undefined
    this.#unfinished--
  }

  #queue(chunk: ChunkMoves, step: Step): void {
    const sendings = this.#outbox.get(step.peer) ?? []
    this.#outbox.set(step.peer, sendings)
    sendings.push({ chunk, step })
    chunk.unsent++
  }

  /** False when it has not come yet. */
  #receive(chunk: ChunkMoves, step: Step): boolean {
    const payload = chunk.early.get(step)
    if (payload === undefined) return false
    chunk.early.delete(step)
    const { values } = chunk
    const codec = this.#codec(step)
    const received = decoded(codec, payload, { count: values.length, from: step.peer })
    if (step.effect === 'add') combine(this.#options.op, values as Numbers, received as Numbers)
    else values.set(received)
    if (step.effect === 'store' && !codec.lossless) chunk.wire = payload
    else letGo(payload, FRAME_HEADER_BYTES + NUMBER_BYTES)
    return true
  }

  #payload(chunk: ChunkMoves, step: Step): Uint8Array {
    if (step.effect === 'store' && chunk.wire !== undefined) return chunk.wire
    const codec = this.#codec(step)
    const bytes = codec.encode(chunk.values)
    if (codec.lossless) return bytes
    const kept = codec.decode(bytes, chunk.values.length)
    this.#noteResidual(chunk, kept)
    if (step.effect === 'add') return bytes
    // Who completed the sum goes on with what the others will decode.
    chunk.values.set(kept)
    chunk.wire = bytes
    return bytes
  }

  #noteResidual({ start, values }: ChunkMoves, kept: Movable): void {
    const { residual } = this.#options
    if (residual === undefined) return
    for (let i = 0; i < values.length; i++) {
      const difference = (values[i] ?? 0) - (kept[i] ?? 0)
      // What is not finite is not carried over: it would never go away again.
      residual[start + i] = difference - difference === 0 ? difference : 0
    }
  }

  #codec({ effect }: Step): Codec {
    return effect === 'add' ? this.#options.partial : this.#options.final
  }

  #frameType({ effect }: Step): FrameType {
    if (this.#options.pair === true) return 'chunk'
    return effect === 'add' ? 'partial' : 'reduced'
  }
}

function isAnswered({ kind, peer, round }: Step, from: number, hop: number): boolean {
  return kind === 'receive' && peer === from && round === hop
}

/** Bytes that do not decode are their sender's fault, whenever that shows. */
function decoded(
  codec: Codec,
  bytes: Uint8Array,
  { count, from }: { readonly count: number; readonly from: number },
): Movable {
  try {
    return codec.decode(bytes, count)
  } catch (error) {
    throw isGridError(error)
      ? new RankFailure(from, error.code, `sent what is no ${codec.name}: ${error.message}`)
      : error
  }
}

// Flow control by the ranks' progress: a rank sends no more than the receiver can keep before the receiver has come to
// the same operation. Small messages go at once, a limited number of operations ahead; large ones wait until the
// receiver says that it has begun. Pure: who is told what, and who may go; the frames are elsewhere (exchange-hub.ts).
import { GridError } from '@starling-grid/protocol'

/** Payload bytes of one operation to one rank that go without asking: about what a link holds in flight anyway. */
export const EAGER_BYTES = 64 * 1024
/** Operations that a sender may be ahead of a receiver, all of them small: 2 MiB waiting at most. */
export const MAX_AHEAD = 32
/** A receiver says how far it is when its last word is so many operations old: before the sender has to stop. */
const TELL_AFTER = MAX_AHEAD / 2
/** Lines of operations that one peer may talk about: groups, and groups that were not made here yet. */
const MAX_LINES = 1024

/**
 * Operations that both sides number in the same order: those of one group, or the messages between two of its ranks.
 */
export type Line = string

export class Pace {
  readonly #told = new Map<number, Map<Line, number>>()
  readonly #heard = new Map<number, Map<Line, number>>()

  /** May `bytes` of operation `sequence` go to `peer`? */
  mayGo(peer: number, line: Line, sequence: number, bytes: number): boolean {
    const heard = this.#heard.get(peer)?.get(line) ?? -1
    return this.hasBegun(peer, line, sequence) || (bytes <= EAGER_BYTES && sequence - heard <= MAX_AHEAD)
  }

  hasBegun(peer: number, line: Line, sequence: number): boolean {
    return (this.#heard.get(peer)?.get(line) ?? -1) >= sequence
  }

  /**
   * Must `peer`, which sends `bytes` of it, hear that operation `sequence` has begun here? It counts as told from here
   * on.
   */
  mustTell(peer: number, line: Line, sequence: number, bytes: number): boolean {
    const granted = this.#told.get(peer)?.get(line) ?? -1
    if (granted >= sequence || (bytes <= EAGER_BYTES && sequence - granted < TELL_AFTER)) return false
    note(this.#told, peer, line, sequence)
    return true
  }

  /**
   * `peer` has begun operation `sequence`.
   * @throws GridError 'rate-exceeded' when it talks of too many lines
   */
  heard(peer: number, line: Line, sequence: number): void {
    note(this.#heard, peer, line, sequence)
    if ((this.#heard.get(peer)?.size ?? 0) > MAX_LINES)
      throw new GridError('rate-exceeded', `expected at most ${MAX_LINES} groups at once, got more`)
  }
}

function note(known: Map<number, Map<Line, number>>, peer: number, line: Line, sequence: number): void {
  const lines = known.get(peer) ?? new Map<Line, number>()
  known.set(peer, lines)
  lines.set(line, Math.max(sequence, lines.get(line) ?? -1))
}

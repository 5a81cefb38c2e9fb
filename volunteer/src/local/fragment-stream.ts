// The fragments of one member's local rounds: what each of them was when it left, and what the others get of it. An
// average is taken over at the end of its round only, when it is committed. Before, it may hold blocks that others will
// have to train again (I1). Independent of rings and ballots.
import type { FloatRange } from '../floats.ts'
import { leavesAfter } from './local-fragments.ts'

/** One attempt at a round. */
export interface StreamedRound {
  /** the version that the round starts from */
  readonly base: Float32Array
  /** the private copy that inner steps change */
  readonly inner: Float32Array
  /** targets of all blocks of the assignment */
  readonly weight: number
  /** inner steps of the whole round, those included that an earlier attempt made */
  readonly steps: number
  /** The others get this fragment of `difference`, while inner steps go on. */
  send(fragment: number): void
}

export class FragmentStream {
  readonly fragments: readonly (readonly FloatRange[])[]
  /** Σ targets · (base − local), of the fragments that left: the assignment of the round */
  readonly difference: Float32Array
  /** each fragment of the private copy, as it left */
  readonly #left: Float32Array
  /** fragments that left in this round, in whatever attempt */
  #count = 0
  #round: StreamedRound | undefined

  constructor(fragments: readonly (readonly FloatRange[])[], total: number) {
    this.fragments = fragments
    this.difference = new Float32Array(total)
    this.#left = new Float32Array(total)
  }

  /** A round from another base, or from the same one without what was learned. */
  reset(): void {
    this.#count = 0
    this.#round = undefined
    this.difference.fill(0)
  }

  /** Every fragment of the round left. */
  get whole(): boolean {
    return this.#count === this.fragments.length
  }

  /** What left in an earlier attempt leaves again as it was, with the weight that the assignment has now. */
  begin(round: StreamedRound): void {
    this.#round = round
    for (let fragment = 0; fragment < this.#count; fragment++) this.#send(fragment, round)
  }

  /** So many inner steps are made. */
  stepped(made: number): void {
    const round = this.#current
    const { length: count } = this.fragments
    while (!this.whole && made >= leavesAfter(this.#count, { count, steps: round.steps })) this.#leave(round)
  }

  /** The share is done, and has so many targets: what did not leave yet does now. */
  end(targets: number): void {
    const round = this.#current
    if (targets !== round.weight)
      throw new Error(`internal: an assignment of ${targets} targets was weighted as ${round.weight}`)
    while (!this.whole) this.#leave(round)
  }

  /**
   * The round is committed: `inner` becomes the new version, and keeps what it learned since each fragment left. That
   * is in no difference yet, and will be in the next.
   */
  takeOver(version: Float32Array, inner: Float32Array): void {
    for (let i = 0; i < inner.length; i++)
      inner[i] = Math.fround((version[i] ?? 0) + Math.fround((inner[i] ?? 0) - (this.#left[i] ?? 0)))
  }

  get #current(): StreamedRound {
    if (this.#round === undefined) throw new Error('internal: no round was begun')
    return this.#round
  }

  #leave(round: StreamedRound): void {
    for (const { start, end } of this.fragments[this.#count] ?? [])
      this.#left.set(round.inner.subarray(start, end), start)
    this.#send(this.#count++, round)
  }

  #send(fragment: number, { base, weight, send }: StreamedRound): void {
    for (const range of this.fragments[fragment] ?? [])
      weightedDifference(base, this.#left, { weight, into: this.difference, range })
    send(fragment)
  }
}

/** Divided by Σ weights of all members it is the mean difference, each weighted by what it learned from. */
// oxlint-disable-next-line max-params -- two vectors side by side read best in the order of the formula
export function weightedDifference(
  base: Float32Array,
  local: Float32Array,
  {
    weight,
    into,
    range: { start, end } = { start: 0, end: into.length },
  }: { readonly weight: number; readonly into: Float32Array; readonly range?: FloatRange },
): void {
  for (let i = start; i < end; i++) into[i] = Math.fround(weight * Math.fround((base[i] ?? 0) - (local[i] ?? 0)))
}

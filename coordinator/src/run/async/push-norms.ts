// How far one push may move the model (A1, A2): not further than usual, and what is usual no single member decides.
// Each push is weighed on its own, before it joins a sum. Pure numbers; independent of gradients.
import type { MemberId } from '@starling-grid/protocol'
import { Ascending } from '../../ascending.ts'
import type { PushWeights } from '../../parameter-server/add-push.ts'
import { clipFactor, type PushNorms } from '../../parameter-server/norm-clip.ts'
import { own } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    pushNorms: KnownNorms
  }
}

export const pushNorms = {
  initial: () => ({ pushNorms: new KnownNorms() }),
  memberLost: ({ state }, { id }) => own(state, 'pushNorms').delete(id),
} satisfies Aspect

/** Times the usual norm that a push may have: honest batches of one model stay within 2–3. */
export const PUSH_BOUND = 4
/** Norms remembered of each member: some minutes of pushes, so that the bound follows the training. */
const REMEMBERED = 33
/** Members whose norms must be known, where as many push: with one alone, a liar would be compared with itself. */
export const WITNESSES = 2

const PARTS = ['gradient', 'statistics'] as const
type PartsAscending = Readonly<Record<keyof PushNorms, Ascending>>

/** What pushes of one member were like. */
class MemberNorms {
  /** of its pushes, the newest last; what was clipped counts as its bound */
  readonly norms: PushNorms[] = []
  /** the same of each part, zeros left out */
  readonly #ascending: PartsAscending = { gradient: new Ascending(), statistics: new Ascending() }

  add(norms: PushNorms): void {
    this.norms.push(norms)
    for (const part of PARTS) if (norms[part] > 0) this.#ascending[part].add(norms[part])
  }

  /** The bound on a push is known with it only; the oldest goes when there are too many. */
  replaceNewest(norms: PushNorms): void {
    this.#forget(this.norms.pop())
    this.add(norms)
    if (this.norms.length > REMEMBERED) this.#forget(this.norms.shift())
  }

  #forget(norms: PushNorms | undefined): void {
    if (norms === undefined) return
    for (const part of PARTS) if (norms[part] > 0) this.#ascending[part].remove(norms[part])
  }

  /** Its lower median; 0: none yet. */
  usual(part: keyof PushNorms): number {
    return this.#ascending[part].lowerMedian() ?? 0
  }
}

/**
 * What pushes of each member were like, and what members think is usual. A push costs little whatever the number of
 * members: thousands may push in a second.
 */
export class KnownNorms {
  readonly #members = new Map<MemberId, MemberNorms>()
  /** what is usual for each member, ascending: many pushes of one are still one opinion. Zeros say nothing. */
  readonly #opinions: PartsAscending = { gradient: new Ascending(), statistics: new Ascending() }

  of(id: MemberId): readonly PushNorms[] {
    return this.#members.get(id)?.norms ?? []
  }

  add(id: MemberId, norms: PushNorms): void {
    const member = this.#members.get(id) ?? new MemberNorms()
    this.#members.set(id, member)
    this.#changing(member, () => member.add(norms))
  }

  /** In place of what was added last. */
  replaceNewest(id: MemberId, norms: PushNorms): void {
    const member = this.#members.get(id)
    if (member !== undefined) this.#changing(member, () => member.replaceNewest(norms))
  }

  delete(id: MemberId): void {
    const member = this.#members.get(id)
    this.#members.delete(id)
    if (member !== undefined) this.#changing(member)
  }

  /** Its opinion goes, and comes back as it is after the change; without one it is gone. */
  #changing(member: MemberNorms, change?: () => void): void {
    for (const part of PARTS) if (member.usual(part) > 0) this.#opinions[part].remove(member.usual(part))
    if (change === undefined) return
    change()
    for (const part of PARTS) if (member.usual(part) > 0) this.#opinions[part].add(member.usual(part))
  }

  clear(): void {
    this.#members.clear()
    for (const part of PARTS) this.#opinions[part].clear()
  }

  /** Members but this one whose gradients are known. */
  othersThan(id: MemberId): number {
    return this.#opinions.gradient.size - Number((this.#members.get(id)?.usual('gradient') ?? 0) > 0)
  }

  /** The lower median over members, PUSH_BOUND times. */
  bound(part: keyof PushNorms): number {
    return PUSH_BOUND * (this.#opinions[part].lowerMedian() ?? Number.POSITIVE_INFINITY)
  }
}

/** As weighPush, with what this run knows; `pushing`: members that push now. */
export function weighed(
  { state }: Transition,
  author: MemberId,
  norms: PushNorms,
  pushing: number,
): PushWeights | undefined {
  return weighPush(own(state, 'pushNorms'), author, norms, pushing)
}

/**
 * What a push is multiplied by, each 0…1; undefined: nothing can be said of it yet, it only tells how large gradients
 * are.
 */
export function weighPush(
  known: KnownNorms,
  author: MemberId,
  norms: PushNorms,
  pushing: number,
): PushWeights | undefined {
  const witnesses = known.othersThan(author) + 1
  known.add(author, norms)
  const bounds = { gradient: known.bound('gradient'), statistics: known.bound('statistics') }
  const kept = {
    gradient: Math.min(norms.gradient, bounds.gradient),
    statistics: Math.min(norms.statistics, bounds.statistics),
  }
  known.replaceNewest(author, kept)
  if (witnesses < Math.min(WITNESSES, pushing)) return undefined
  return {
    gradient: clipFactor(norms.gradient, bounds.gradient),
    statistics: clipFactor(norms.statistics, bounds.statistics),
  }
}

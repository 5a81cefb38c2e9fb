// How far one push may move the model (A1, A2): not further than usual, and what is usual no single member decides.
// Each push is weighed on its own, before it joins a sum. Pure numbers; independent of gradients.
import type { MemberId } from '@starling-grid/protocol'
import type { PushWeights } from '../../parameter-server/add-push.ts'
import { clipFactor, type PushNorms } from '../../parameter-server/norm-clip.ts'
import { own } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    pushNorms: KnownNorms
  }
}

export const pushNorms = { initial: () => ({ pushNorms: new Map() }) } satisfies Aspect

/** Times the usual norm that a push may have: honest batches of one model stay within 2–3. */
export const PUSH_BOUND = 4
/** Norms remembered of each member: some minutes of pushes, so that the bound follows the training. */
const REMEMBERED = 33
/** Members whose norms must be known, where as many push: with one alone, a liar would be compared with itself. */
const WITNESSES = 2

/** member → norms of its pushes, the newest last; what was clipped counts as its bound */
export type KnownNorms = Map<MemberId, PushNorms[]>

/** As weighPush, with what this run knows; `pushing`: members that push now. */
export function weighed(
  { state }: Transition,
  author: MemberId,
  norms: PushNorms,
  pushing: number,
): PushWeights | undefined {
  const known = own(state, 'pushNorms')
  for (const id of known.keys()) if (!state.members.has(id)) known.delete(id)
  return weighPush(known, author, norms, pushing)
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
  const others = [...known].filter(([id, all]) => id !== author && usual(all, 'gradient') > 0).length
  const witnesses = others + 1
  const before = known.get(author) ?? []
  const withThis = new Map(known).set(author, [...before, norms])
  const bounds = { gradient: boundOf(withThis, 'gradient'), statistics: boundOf(withThis, 'statistics') }
  const kept = {
    gradient: Math.min(norms.gradient, bounds.gradient),
    statistics: Math.min(norms.statistics, bounds.statistics),
  }
  known.set(author, [...before, kept].slice(-REMEMBERED))
  if (witnesses < Math.min(WITNESSES, pushing)) return undefined
  return {
    gradient: clipFactor(norms.gradient, bounds.gradient),
    statistics: clipFactor(norms.statistics, bounds.statistics),
  }
}

/**
 * The lower median over members of what is usual for each: many pushes of one are still one opinion. Zeros say
 * nothing.
 */
function boundOf(known: KnownNorms, part: keyof PushNorms): number {
  const opinions = [...known.values()]
    .map((norms) => usual(norms, part))
    .filter((norm) => norm > 0)
    .sort((a, b) => a - b)
  const median = opinions[(opinions.length - 1) >> 1]
  return median === undefined ? Number.POSITIVE_INFINITY : PUSH_BOUND * median
}

/** Its lower median, zeros left out; 0: none yet. */
function usual(norms: readonly PushNorms[], part: keyof PushNorms): number {
  const sorted = norms
    .map((one) => one[part])
    .filter((norm) => norm > 0)
    .sort((a, b) => a - b)
  return sorted[(sorted.length - 1) >> 1] ?? 0
}

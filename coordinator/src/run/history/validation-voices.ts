// What members measured of one validation block, and when it counts: two members that a block was leased to separately
// say the same numbers. Where they differ a third is asked. Decides from what was said alone.
import { type MemberId, numbersOf } from '@starling-grid/protocol'
import type { ValidationResult } from '../state.ts'

export type Measured = Omit<ValidationResult, 'confirmed'>

export interface Voice {
  readonly member: MemberId
  readonly network: string | undefined
  readonly measured: Measured
}

/** Members that must agree. */
export const ENOUGH_VOICES = 2
/** Members that compute one block at most: the bound of the work. */
export const MOST_VOICES = 3
/**
 * Parts of the loss and of the targets by which adapters differ: the order of float sums, half precision, and ties
 * between two classes
 */
const LOSS_TOLERANCE = 1e-2
const CORRECT_TOLERANCE = 1e-2
/** nats a target: losses near zero are equal whatever part of each other they are */
const LEAST_LOSS = 1e-4

export interface Verdict {
  readonly measured: Measured
  readonly confirmed: boolean
  /** members that two others contradict */
  readonly few: readonly MemberId[]
}

export function agree(a: Measured, b: Measured): boolean {
  const loss = LOSS_TOLERANCE * Math.max(Math.abs(a.lossSum), Math.abs(b.lossSum)) + LEAST_LOSS * a.targets
  return (
    a.samples === b.samples &&
    a.targets === b.targets &&
    Math.abs(a.correct - b.correct) <= 1 + CORRECT_TOLERANCE * a.targets &&
    Math.abs(a.lossSum - b.lossSum) <= loss &&
    agreeOnTally(a, b)
  )
}

/** Those of older volunteers lack. */
function agreeOnTally(a: Measured, b: Measured): boolean {
  if (a.tally === undefined || b.tally === undefined) return true
  const [mine, theirs] = [numbersOf(a.tally), numbersOf(b.tally)]
  const isNear = (x: number, y: number): boolean =>
    Math.abs(x - y) <= 1 + CORRECT_TOLERANCE * (a.targets + Math.max(Math.abs(x), Math.abs(y)))
  return a.tally.of === b.tally.of && mine.length === theirs.length && mine.every((x, i) => isNear(x, theirs[i] ?? 0))
}

/**
 * Undefined: another voice is needed, and `others` says that a member can be asked. `networks`: members of several
 * networks are there, so that members of one network count as one voice. Where no two members agree the highest loss is
 * taken, unconfirmed: one member alone can make a model look worse, not better.
 */
export function verdictOf(
  voices: readonly Voice[],
  { others, networks }: { readonly others: boolean; readonly networks: boolean },
): Verdict | undefined {
  const weight = (group: readonly Voice[]): number =>
    networks ? new Set(group.map(({ network }) => network)).size : group.length
  const groups = groupsOf(voices).sort((a, b) => weight(b) - weight(a))
  const [most = [], next = []] = groups
  const [first] = most
  if (first === undefined) return undefined
  if (weight(most) >= ENOUGH_VOICES && weight(most) > weight(next)) {
    const few = voices.filter((voice) => !most.includes(voice)).map(({ member }) => member)
    return { measured: confirmedOf(first, weight(most.filter(hasTally)) >= ENOUGH_VOICES), confirmed: true, few }
  }
  if (others && voices.length < MOST_VOICES) return undefined
  const worst = voices.reduce((a, b) => (b.measured.lossSum > a.measured.lossSum ? b : a))
  return { measured: worst.measured, confirmed: false, few: [] }
}

function hasTally({ measured }: Voice): boolean {
  return measured.tally !== undefined
}

/** What older volunteers do not count has one voice: it judges nothing (R19). */
function confirmedOf({ measured }: Voice, isTallyConfirmed: boolean): Measured {
  if (isTallyConfirmed) return measured
  const { tally: _, ...sums } = measured
  return sums
}

function groupsOf(voices: readonly Voice[]): Voice[][] {
  const groups: Voice[][] = []
  for (const voice of voices) {
    const group = groups.find(([first]) => first !== undefined && agree(first.measured, voice.measured))
    if (group === undefined) groups.push([voice])
    else group.push(voice)
  }
  return groups
}

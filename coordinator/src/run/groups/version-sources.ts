// Who passes a version on (G3). All members of a run of groups begin a round from the head at about the same time. The
// first few fetch it from the coordinator, the others from members that were given it before them. So no two wait for
// each other. A member's sources stay the same from one version to the next where they can, since a new link takes
// time. Every further member in the way costs time, so the coordinator serves as many as its line carries with ease.
// Volatile: after a restart all are chosen anew.
import { MAX_VERSION_SOURCES, type MemberId, type VersionId } from '@starling-grid/protocol'
import { bytesNow } from '../policy/encoding-now.ts'
import { type Member, own, type RunState } from '../state.ts'
import type { Aspect } from '../transition.ts'
import { makesRounds } from './group-policy.ts'

/** Members that one passes a version on to: each gets a part of its line. */
export const MOST_SERVED = 4
/** Sources that did not serve a member which are remembered, the latest: perhaps no link opens between the two. */
const MOST_AVOIDED = 8

declare module '../state.ts' {
  interface Slices {
    versionSources: VersionSources
  }
}

export interface VersionSources {
  /** the version that holders have */
  of: VersionId | undefined
  /** members that were given it */
  given: number
  /** of these, the ones that may pass it on to more, in this order → to how many they do */
  readonly free: Map<MemberId, number>
  readonly habits: Map<MemberId, SourceHabit>
}

/** What is remembered of a member from one version to the next. */
export interface SourceHabit {
  /** that it was given last */
  readonly sources: readonly MemberId[]
  /** that did not serve it */
  readonly avoided: readonly MemberId[]
}

const NO_HABIT: SourceHabit = { sources: [], avoided: [] }

export const versionSources = {
  initial: () => ({ versionSources: { of: undefined, given: 0, free: new Map(), habits: new Map() } }),
  memberLost: ({ state }, { id }) => {
    const slice = own(state, 'versionSources')
    slice.free.delete(id)
    slice.habits.delete(id)
  },
  frozen: ({ state }) => {
    own(state, 'versionSources').of = undefined // what members began from belongs to the ballot before
  },
} satisfies Aspect

/** Where this member fetches the head; none: from the coordinator. Others may fetch it from this member from now on. */
export function giveSources(state: RunState, { id, relaysOnly }: Member): readonly MemberId[] {
  const { head } = state.chain
  if (!makesRounds(state.config.async.groups) || head.v === 0 || relaysOnly === true) return []
  const slice = own(state, 'versionSources')
  if (slice.of !== head.id) {
    slice.of = head.id
    slice.given = 0
    slice.free.clear()
  }
  const habit = slice.habits.get(id) ?? NO_HABIT
  const isSeed = slice.given < Math.max(state.config.timing.versionSeeds, seedsCarried(state))
  const sources = isSeed ? [] : chooseSources(id, slice.free, habit)
  for (const source of sources) serves(slice.free, source)
  slice.given++
  slice.free.set(id, slice.free.get(id) ?? 0)
  slice.habits.set(id, { ...habit, sources })
  return sources
}

/** Members that the coordinator serves with ease while a round lasts, beside the pushes of all. */
function seedsCarried(state: RunState): number {
  const { members, rounds, config } = state
  const { push, pull } = bytesNow(state).roundBytes
  return Math.floor((config.timing.easyBytesPerMs * rounds.length.ms - members.size * push) / Math.max(pull, 1))
}

function serves(free: Map<MemberId, number>, source: MemberId): void {
  const served = (free.get(source) ?? 0) + 1
  if (served < MOST_SERVED) free.set(source, served)
  else free.delete(source)
}

/** Those that it knows, then those that were given the version first: the way from the coordinator is short. */
export function chooseSources(
  member: MemberId,
  free: ReadonlyMap<MemberId, number>,
  { sources, avoided }: SourceHabit,
): readonly MemberId[] {
  const isFree = (id: MemberId): boolean => id !== member && !avoided.includes(id) && free.has(id)
  const chosen = sources.filter(isFree)
  for (const id of free.keys()) {
    if (chosen.length >= MAX_VERSION_SOURCES) break
    if (isFree(id) && !chosen.includes(id)) chosen.push(id)
  }
  return chosen.slice(0, MAX_VERSION_SOURCES)
}

/** These did not serve this member. One voice says nothing of them to others. */
export function noteUnserved(state: RunState, member: MemberId, unserved: readonly MemberId[]): void {
  const { habits } = own(state, 'versionSources')
  const habit = habits.get(member)
  if (habit === undefined || unserved.length === 0) return
  const named = unserved.filter((id) => habit.sources.includes(id))
  habits.set(member, {
    sources: habit.sources.filter((id) => !named.includes(id)),
    avoided: [...habit.avoided.filter((id) => !named.includes(id)), ...named].slice(-MOST_AVOIDED),
  })
}

/** Members that had a version from others last, all of it as far as is known. */
export function servedByMembers({ versionSources: { habits } }: RunState): number {
  let count = 0
  for (const { sources } of habits.values()) count += Number(sources.length > 0)
  return count
}

// A version that can be had in no way (R17-stranded): its holders are here, cannot upload it, and no other member can
// link to them, not even through the coordinator. Without this rule a run of two such members would wait for ever.
import type { MemberId, MessageFrom, VersionId, VersionRef } from '@starling-grid/protocol'
import { newestCheckpoint } from '../journal-replay.ts'
import { exclude } from '../ring/membership.ts'
import { own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import type { ValidClaim } from './claims.ts'
import { rewind } from './rewind.ts'

declare module '../state.ts' {
  interface Slices {
    /** holders of a version that no checkpoint holds → what was tried to have it from them */
    stranded: Map<MemberId, FailedTries>
  }
}

export interface FailedTries {
  readonly version: VersionId
  /** that the holder was asked for, and that did not begin, broke off, or took the longest time */
  readonly uploads: number
  /** that other members broke off, since no link to the holder opened */
  readonly fetches: number
  /** members that broke one off */
  readonly by: ReadonlySet<MemberId>
  /** ms: when the first of them failed */
  readonly since: number
}

/** Tries of each kind that fail before the version is given up. */
const MOST_TRIES = 5
/**
 * Times `lostMs`, ten minutes: a holder that is here may have its line back in a moment, and one that is gone is waited
 * for as well.
 */
const PATIENCE = 10

/** What becomes of a version, and why. */
export interface StrandedVerdict {
  readonly isGivenUp: boolean
  readonly reason: string
}

/** R17-stranded: both ways were tried several times, for a long time. Either alone proves nothing. */
export function verdictOn(
  { uploads, fetches, since }: Pick<FailedTries, 'uploads' | 'fetches' | 'since'>,
  now: number,
  lostMs: number,
): StrandedVerdict {
  const waited = now - since
  const tries = `${uploads} uploads and ${fetches} fetches failed in ${Math.round(waited / 1000)} s`
  if (Math.min(uploads, fetches) < MOST_TRIES) return { isGivenUp: false, reason: `${tries}: it is tried on` }
  if (waited < PATIENCE * lostMs) return { isGivenUp: false, reason: `${tries}: its holder may have its line back` }
  return { isGivenUp: true, reason: tries }
}

export const stranded = {
  initial: () => ({ stranded: new Map() }),
  hear: { abort: onAbort },
  started: ({ state }, members) => {
    const all = own(state, 'stranded')
    for (const [id, { version }] of all)
      if (version === state.chain.head.id && members.some((member) => !all.has(member))) all.delete(id)
  },
  committed: ({ state }) => own(state, 'stranded').clear(),
  memberLost: ({ state }, { id }) => void own(state, 'stranded').delete(id),
} satisfies Aspect

/** A member of a forming generation reached no source. */
function onAbort({ state, now }: Transition, by: MemberId, { why, links }: MessageFrom<'abort'>): void {
  const { phase } = state
  if (phase.type !== 'form' || !phase.members.includes(by) || why !== 'unopened') return
  if (phase.target.v === 0 || newestCheckpoint(state).version.id === phase.target.id) return
  for (const source of phase.sources)
    if (links.includes(source) && source !== by)
      count(state, source, { version: phase.target, now }, ({ fetches, by: all }) => ({
        fetches: fetches + 1,
        by: new Set([...all, by]),
      }))
}

/** An upload that was asked for came to nothing. */
export function noteFailedUpload({ state, now }: Transition, holder: MemberId, version: VersionRef | undefined): void {
  if (version === undefined || !state.members.has(holder)) return
  count(state, holder, { version, now }, ({ uploads }) => ({ uploads: uploads + 1 }))
}

function count(
  state: RunState,
  holder: MemberId,
  { version, now }: { readonly version: VersionRef; readonly now: number },
  change: (tries: FailedTries) => Partial<FailedTries>,
): void {
  const all = own(state, 'stranded')
  const before = all.get(holder)
  const isSame = before?.version === version.id
  const tries = isSame ? before : { version: version.id, uploads: 0, fetches: 0, by: new Set<MemberId>(), since: now }
  all.set(holder, { ...tries, ...change(tries) })
}

/** Its version is given up, for as long as the members that go on without it have committed no step. */
export function isStranded({ stranded: all, config }: RunState, id: MemberId, now: number): boolean {
  const tries = all.get(id)
  return tries !== undefined && verdictOn(tries, now, config.timing.lostMs).isGivenUp
}

/**
 * Claims of versions that can be had. All of them while no other member is here: it could only repeat the same work.
 */
export function withoutStranded(
  { state, now }: Transition,
  claims: readonly ValidClaim[],
  answered: Iterable<MemberId>,
): readonly ValidClaim[] {
  const gone = claims.filter(
    ({ member, version }) => isStranded(state, member, now) && state.stranded.get(member)?.version === version.id,
  )
  const others = [...answered].filter((id) => !gone.some(({ member }) => member === id))
  return others.length === 0 ? claims : claims.filter((claim) => !gone.includes(claim))
}

/** It was left out for what it could not fetch, and is wanted now. */
function letIn({ members }: RunState, id: MemberId, now: number): void {
  const member = members.get(id)
  if (member !== undefined) member.excludedUntil = Math.min(member.excludedUntil, now)
}

/**
 * Back to the checkpoint without its holders (R6): in a ring with the others they would end up with a version again.
 */
export function giveUpStranded(transition: Transition, answered: Iterable<MemberId>): boolean {
  const { state, now } = transition
  const holders = [...answered].filter((id) => isStranded(state, id, now))
  for (const id of holders) {
    const tries = state.stranded.get(id)
    if (tries === undefined) continue
    exclude(transition, id, verdictOn(tries, now, state.config.timing.lostMs).reason)
    for (const other of tries.by) letIn(state, other, now)
  }
  if (holders.length > 0) rewind(transition, 'its holders can neither upload the newest version nor pass it on')
  return holders.length > 0
}

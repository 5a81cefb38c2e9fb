// How long a FORM waits for CONFIRM (R17). A member that has all it needs gets a multiple of what the others took. One
// that has to fetch a state gets the fixed limits.
import { fold, type Claim, type MemberId, type VersionRef } from '@starling-grid/protocol'
import { areLinked } from '../links/generation-links.ts'
import type { FormPhase, RunState } from '../state.ts'
import { lacksLittle } from './learners.ts'

/** ms that a member with all it needs gets at least: its machine may be busy for a moment */
const LEAST_MS = 4000
/** Times what the slowest of the others took. */
const PATIENCE = 4
/** bytes a ms that slow machines encode and digest of their state, one after the other */
const ENCODED_PER_MS = 25_000

/** It holds the target, or the seed makes it; or a newcomer lacks what takes it a moment. */
export function isNear(
  state: RunState,
  target: VersionRef,
  { id, claim }: { readonly id: MemberId; readonly claim: Claim | null | undefined },
): boolean {
  if (state.members.get(id)?.drifted === true) return false
  if (target.v === 0 && state.config.initial === undefined) return true
  const held = claim ? fold(claim.base, claim.records) : undefined
  if (held === undefined) return false
  return held.id === target.id || (state.chain.has(held) && lacksLittle(state, id, target.v - held.v))
}

/** Members that the FORM waits for no longer; none while it waits for all. */
export function overdue(state: RunState, phase: FormPhase, now: number): MemberId[] {
  const late = phase.members.filter((id) => !phase.confirmed.has(id))
  const waitedMs = now - phase.since
  if (waitedMs >= limitMs(state, phase, late)) return late
  return waitedMs >= othersMs(state, phase) ? late.filter((id) => isBehindOthers(phase, late, id)) : []
}

/** It worked in no ring yet, and others here have. */
export function isAmongExperienced({ members }: RunState, phase: FormPhase, id: MemberId): boolean {
  const isNewcomer = (one: MemberId): boolean => (members.get(one)?.stepsHeld ?? 0) === 0
  return isNewcomer(id) && !phase.members.every(isNewcomer)
}

function limitMs(state: RunState, phase: FormPhase, late: readonly MemberId[]): number {
  const { formMs, newcomerMs } = state.config.timing
  const areNewcomers = late.every((id) => isAmongExperienced(state, phase, id))
  return areNewcomers ? Math.min(formMs, newcomerMs) : formMs
}

function othersMs({ config }: RunState, { since, lastConfirmAt = since }: FormPhase): number {
  return LEAST_MS + config.versionBytes / ENCODED_PER_MS + PATIENCE * (lastConfirmAt - since)
}

/**
 * At least as many others confirmed, and no neighbour of it is late. Of two that are late, one may wait for its link to
 * the other. That wait ends with linkOpenMs and names the link.
 */
function isBehindOthers(phase: FormPhase, late: readonly MemberId[], id: MemberId): boolean {
  if (!phase.near.has(id) || late.length > phase.confirmed.size) return false
  return !late.some((other) => other !== id && areLinked(phase, id, other))
}

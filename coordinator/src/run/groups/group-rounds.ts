// Rounds of replica groups (G1, G2): how much a member learns from in one, and when what groups contributed becomes a
// version. Pure numbers of the run's state.
import { MAX_STEP_BLOCKS } from '@starling-grid/protocol'
import type { Member, RunState } from '../state.ts'

/**
 * Times the usual time of a round that a version waits for more contributions, once it has one. Where members come and go
 * some are always in the middle of a round, and those that are done must not wait for them.
 */
const PATIENCE = 0.2
const LEAST_PATIENCE_MS = 2000
/** Times as long a lease as the round should take. */
const LEASE_FACTOR = 3

/** Rounds of several inner steps; undefined: members push gradients. */
export function innerStepsOf({ config }: RunState): number | undefined {
  const steps = config.async.groups?.innerSteps ?? 1
  return steps === 1 ? undefined : steps
}

/**
 * Blocks for each of `members` in its next round. One of median speed gets H global batches, faster ones more and
 * slower ones fewer, so that all take as long (dynamic local updates: Liu et al., 2024, arXiv 2401.09135). No member
 * gets more than its part of an epoch, so that a crowd shares a small dataset.
 */
export function blocksOfRound(state: RunState, members: readonly Member[]): number[] {
  const { batchBlocks, blocks } = state.config
  const speeds = [...state.members.values()].map(({ samplesPerSecond }) => samplesPerSecond).toSorted((a, b) => a - b)
  const median = Math.max(speeds[speeds.length >> 1] ?? 0, 1e-3)
  const all = speeds.reduce((sum, speed) => sum + speed, 0)
  const round = (innerStepsOf(state) ?? 1) * batchBlocks
  return members.map(({ samplesPerSecond }) => {
    const wanted = Math.round((round * samplesPerSecond) / median)
    const part = Math.ceil((blocks * samplesPerSecond) / Math.max(all, 1e-3))
    return Math.max(1, Math.min(wanted, part, MAX_STEP_BLOCKS))
  })
}

/** Inner steps of a member with so many blocks: each is a global batch, the last perhaps less. */
export function stepsIn(state: RunState, blocks: number): number {
  return Math.ceil(blocks / state.config.batchBlocks)
}

/** ms for a round of so many blocks at the speed that the member says, before one of its rounds was measured. */
export function roundMs({ config }: RunState, { samplesPerSecond, pushMs }: Member, blocks: number): number {
  const expected = (1000 * blocks * config.blockSamples) / Math.max(samplesPerSecond, 1e-3)
  return LEASE_FACTOR * Math.max(expected, pushMs)
}

/** Contributions that a version waits for: those that it has, and those of others that are still computed. */
export function expected(state: RunState): number {
  const { pushes } = state.open
  const pushed = new Set(pushes.map(({ incarnation }) => incarnation))
  let atWork = 0
  for (const member of state.members.values()) if (!pushed.has(member.id) && isAtWork(state, member)) atWork++
  return atWork + pushes.length
}

/** It has leases, and brought the last ones back. */
function isAtWork({ leases }: RunState, { granted, missedLeases }: Member): boolean {
  const first = granted?.blocks[0]
  return first !== undefined && missedLeases === 0 && leases.get(first)?.leaseEpoch === granted?.leaseEpoch
}

/** A version does not wait for the slowest: once it has one contribution that is not late it is due after a while (G2). */
export function isOverdue(state: RunState, now: number): boolean {
  const { open, members } = state
  if (open.since === undefined) return false
  const usual = open.pushes.map(({ incarnation }) => members.get(incarnation)?.pushMs ?? 0).toSorted((a, b) => a - b)
  return now - open.since > Math.max(LEAST_PATIENCE_MS, PATIENCE * (usual[usual.length >> 1] ?? 0))
}

/**
 * It begins its next round from the version that takes in its last one. One whose round was late for its version begins
 * at once: the next version is most of a round away.
 */
export function isWaitingForItsVersion({ open, chain }: RunState): (member: Member) => boolean {
  const fresh = open.pushes.filter(({ base }) => base.v === chain.head.v)
  const pushed = new Set(fresh.map(({ incarnation }) => incarnation))
  return ({ id }) => pushed.has(id)
}

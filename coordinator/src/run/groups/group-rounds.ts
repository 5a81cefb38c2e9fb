// Rounds of replica groups (G1, G2): how much a member learns from in one, and when what groups contributed becomes a
// version. Pure numbers of the run's state.
import { MAX_INNER_STEPS, MAX_STEP_BLOCKS } from '@starling-grid/protocol'
import type { Member, RunState } from '../state.ts'
import { makesRounds } from './group-policy.ts'

/**
 * Times the usual time of a round that a version waits for more contributions, once it has one. Where members come and
 * go some are always in the middle of a round, and those that are done must not wait for them.
 */
const PATIENCE = 0.2
const LEAST_PATIENCE_MS = 2000
/** Times as long a lease as the round should take. */
const LEASE_FACTOR = 3

/** Members push what they learned in rounds; false: gradients. */
export function hasRounds({ config }: RunState): boolean {
  return makesRounds(config.async.groups)
}

/** H, of a member of median speed. */
export function innerSteps(state: RunState): number {
  const speeds = speedsOf(state)
  return stepsIn(state, Math.max(1, blocksAt(state, speeds.median, speeds)))
}

/**
 * Blocks for each of `members` in its next round. One of median speed gets H global batches, faster ones more and
 * slower ones fewer, so that all take as long (dynamic local updates: Liu et al., 2024, arXiv 2401.09135). No member
 * gets more than its part of an epoch, so that a crowd shares a small dataset.
 */
export function blocksOfRound(state: RunState, members: readonly Member[]): number[] {
  const { blocks, batchBlocks } = state.config
  const speeds = speedsOf(state)
  const most = Math.min(MAX_STEP_BLOCKS, MAX_INNER_STEPS * batchBlocks)
  return members.map(({ samplesPerSecond }) => {
    const part = Math.ceil((blocks * samplesPerSecond) / speeds.all)
    return Math.max(1, Math.min(blocksAt(state, samplesPerSecond, speeds), part, most))
  })
}

interface Speeds {
  readonly median: number
  readonly all: number
}

function speedsOf({ members }: RunState): Speeds {
  const speeds = [...members.values()].map(({ samplesPerSecond }) => samplesPerSecond).toSorted((a, b) => a - b)
  const all = speeds.reduce((sum, speed) => sum + speed, 0)
  return { median: Math.max(speeds[speeds.length >> 1] ?? 0, 1e-3), all: Math.max(all, 1e-3) }
}

/** In a round at this speed: as long as it should last, or as many steps as the job says. */
function blocksAt({ config, rounds }: RunState, samplesPerSecond: number, { median }: Speeds): number {
  const { batchBlocks, blockSamples, async } = config
  const { innerSteps: asked = 1 } = async.groups ?? {}
  return asked === 'auto'
    ? Math.round((rounds.length.ms * samplesPerSecond) / (1000 * blockSamples))
    : Math.round((asked * batchBlocks * samplesPerSecond) / median)
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

/**
 * Contributions that a version waits for: those that it has, and those of others that are still computed. With `update:
 * all` these are of all members that bring their leases back, also before they ask for one.
 */
export function expected(state: RunState): number {
  const { update } = state.config.async
  return update === 'all' ? countExpected(state) : known(state)
}

interface KnownExpectation {
  readonly of: string
  readonly count: number
}

/**
 * Asked for at every push of thousands of members. Who is at work changes with the leases alone. Between two grants
 * these only become fewer, so their number tells them apart.
 */
const expectations = new WeakMap<RunState, KnownExpectation>()

function known(state: RunState): number {
  const { open, members, leases, leaseEpoch, modeEpoch, chain } = state
  const of = [modeEpoch, chain.head.id, leaseEpoch, leases.size, open.pushes.length, members.size].join(' ')
  const before = expectations.get(state)
  if (before?.of === of) return before.count
  const count = countExpected(state)
  expectations.set(state, { of, count })
  return count
}

function countExpected(state: RunState): number {
  const { open, members, config } = state
  const pushed = new Set(open.pushes.map(({ incarnation }) => incarnation))
  const isWaitedFor = config.async.update === 'all' ? isReliable : (member: Member) => isAtWork(state, member)
  let others = 0
  for (const member of members.values()) if (!pushed.has(member.id) && isWaitedFor(member)) others++
  return others + open.pushes.length
}

function isReliable({ leaving, missedLeases }: Member): boolean {
  return !leaving && missedLeases === 0
}

/** It has leases, and brought the last ones back. */
function isAtWork({ leases }: RunState, { granted, missedLeases }: Member): boolean {
  const first = granted?.blocks[0]
  return first !== undefined && missedLeases === 0 && leases.get(first)?.leaseEpoch === granted?.leaseEpoch
}

/**
 * A version does not wait for the slowest: once it has one contribution that is not late it is due after a while (G2).
 */
export function isOverdue(state: RunState, now: number): boolean {
  const { open, members } = state
  if (open.since === undefined) return false
  const usual = open.pushes.map(({ incarnation }) => members.get(incarnation)?.pushMs ?? 0).toSorted((a, b) => a - b)
  return now - open.since > Math.max(LEAST_PATIENCE_MS, PATIENCE * (usual[usual.length >> 1] ?? 0))
}

/** With `update: all`: those that are waited for do not ask, or get no block that is left. */
export function isForsaken({ open, config }: RunState, now: number): boolean {
  return open.since !== undefined && now - open.since > config.timing.leaseMinMs
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

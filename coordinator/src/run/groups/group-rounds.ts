// Rounds of replica groups (G1, G2): how much a member learns from in one, and when what groups contributed becomes a
// version. Pure numbers of the run's state.
import { MAX_INNER_STEPS, MAX_STEP_BLOCKS, type MemberId, type Push } from '@starling-grid/protocol'
import type { Member, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { makesRounds } from './group-policy.ts'
import { exchangeMsOf, roundLengthMs, roundMsLeft } from './round-length.ts'

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
  return stepsIn(state, Math.max(1, blocksAt(state, speeds.median, { ...speeds, ms: roundLengthMs(state) })))
}

/**
 * Blocks for each of `members` in the round that begins now. One of median speed gets H global batches, faster ones
 * more and slower ones fewer, so that all take as long (dynamic local updates: Liu et al., 2024, arXiv 2401.09135). No
 * member gets more than its part of an epoch, so that a crowd shares a small dataset.
 */
export function blocksOfRound(state: RunState, members: readonly Member[], now: number): number[] {
  const { blocks, batchBlocks } = state.config
  const speeds = speedsOf(state)
  const ms = roundMsLeft(state, now)
  const most = Math.min(MAX_STEP_BLOCKS, MAX_INNER_STEPS * batchBlocks)
  return members.map(({ samplesPerSecond }) => {
    const part = Math.ceil((blocks * samplesPerSecond) / speeds.all)
    return Math.max(1, Math.min(blocksAt(state, samplesPerSecond, { ...speeds, ms }), part, most))
  })
}

interface Speeds {
  readonly median: number
  readonly all: number
}

function speedsOf({ speeds }: RunState): Speeds {
  return { median: Math.max(speeds.upperMedian() ?? 0, 1e-3), all: Math.max(speeds.sum, 1e-3) }
}

/** In a round at this speed: of so many ms, or as many steps as the job says. */
function blocksAt(
  { config }: RunState,
  samplesPerSecond: number,
  { median, ms }: { readonly median: number; readonly ms: number },
): number {
  const { batchBlocks, blockSamples, async } = config
  const { innerSteps: asked = 1 } = async.groups ?? {}
  return asked === 'auto'
    ? Math.round((ms * samplesPerSecond) / (1000 * blockSamples))
    : Math.round((asked * batchBlocks * samplesPerSecond) / median)
}

/** Inner steps of a member with so many blocks: each is a global batch, the last perhaps less. */
export function stepsIn(state: RunState, blocks: number): number {
  return Math.ceil(blocks / state.config.batchBlocks)
}

/**
 * ms for a round of so many blocks at the speed that the member says. It counts from the decision. In a crowd a grant
 * waits behind pushes that are taken in, and the lease of a short round would be over before its member hears of it.
 */
export function roundMs(state: RunState, { samplesPerSecond, pushMs }: Member, blocks: number): number {
  const computingMs = (1000 * blocks * state.config.blockSamples) / Math.max(samplesPerSecond, 1e-3)
  return LEASE_FACTOR * Math.max(computingMs + (exchangeMsOf(state) ?? 0), pushMs)
}

/**
 * The push is of a whole round, or of one that was cut when it had lasted as long as it should. Who leaves comes at any
 * time, which says nothing of when the others come (G2).
 */
export function isInTurn({ state, now }: Pick<Transition, 'state' | 'now'>, { incarnation, leases }: Push): boolean {
  const { blocks = [] } = state.members.get(incarnation)?.granted ?? {}
  if (blocks.length <= leases.length) return true
  const [first] = leases
  const lease = first === undefined ? undefined : state.leases.get(first.block)
  return lease !== undefined && LEASE_FACTOR * (now - lease.grantedAt) >= lease.deadline - lease.grantedAt
}

/**
 * Contributions that a version waits for: those that it has, and those of others that are still computed. With `update:
 * all` these are of all members that bring their leases back, also before they ask for one. Rounds that began from an
 * older version are not among them: they come when they come. If they counted, a version would be due before those that
 * began from the newest one are there, and these would be late for it in turn.
 */
export function expected(state: RunState): number {
  const { update } = state.config.async
  return update === 'all' ? countReliable(state) : known(state)
}

/** Pushes of the open sum that count for this: with a share of those under way, the ones of the newest version. */
export function arrived({ open, config }: RunState): number {
  const { groups, update, proportion } = config.async
  const isShare = groups !== undefined && update === 'proportion' && proportion <= 1
  return isShare ? open.fresh.size : open.pushes.length
}

/** Who is at work on the newest version and has nothing of it in the open sum. */
interface Awaited {
  /** of the open sum that they are waited for, and how many of them were looked at */
  pushes: RunState['open']['pushes']
  seen: number
  readonly members: Set<MemberId>
}

const awaited = new WeakMap<RunState, Awaited>()

/** Asked for at every push of thousands of members: those alone are looked at whose leases or pushes changed. */
function known(state: RunState): number {
  const { open, leases } = state
  const before = awaited.get(state)
  const changed = leases.takeChangedHolders()
  if (before === undefined || changed === undefined || before.pushes !== open.pushes) return countAwaited(state)
  const again = new Set([...changed, ...open.pushes.slice(before.seen).map(({ incarnation }) => incarnation)])
  before.seen = open.pushes.length
  for (const id of again)
    if (isAwaited(state, state.members.get(id))) before.members.add(id)
    else before.members.delete(id)
  return before.members.size + open.fresh.size
}

function countAwaited(state: RunState): number {
  const { open, members } = state
  const found = new Set<MemberId>()
  for (const member of members.values()) if (isAwaited(state, member)) found.add(member.id)
  awaited.set(state, { pushes: open.pushes, seen: open.pushes.length, members: found })
  return found.size + open.fresh.size
}

function isAwaited(state: RunState, member: Member | undefined): boolean {
  return member !== undefined && !state.open.fresh.has(member.id) && isAtWork(state, member)
}

/** Of all that bring their leases back, also before they ask for one. */
function countReliable({ open, members }: RunState): number {
  let others = 0
  for (const { id, leaving, missedLeases } of members.values())
    if (!leaving && missedLeases === 0 && !open.pushers.has(id)) others++
  return others + open.pushes.length
}

/** It has leases of a round from the newest version, and brought the last ones back. */
function isAtWork({ leases, chain }: RunState, { granted, missedLeases }: Member): boolean {
  const [first] = granted?.blocks ?? []
  const held = first === undefined ? undefined : leases.get(first)
  return missedLeases === 0 && held?.leaseEpoch === granted?.leaseEpoch && held?.base === chain.head.v
}

/**
 * A version does not wait for the slowest: once it has one contribution that is not late, it is due a while after the
 * rounds should have ended (G2). A round that ends before had few blocks, and says nothing of when the others come.
 */
export function isOverdue(state: RunState, now: number): boolean {
  const { since, usualMs } = state.open
  if (since === undefined) return false
  const patienceMs = Math.max(LEAST_PATIENCE_MS, PATIENCE * (usualMs.upperMedian() ?? 0))
  return now - Math.max(since, roundsEnd(state)) > patienceMs
}

/** ms: when the rounds from the newest version should end; the beginning of time where the job says how many steps. */
function roundsEnd(state: RunState): number {
  const { config, chain, rounds } = state
  if (config.async.groups?.innerSteps !== 'auto' || rounds.from?.id !== chain.head.id) return Number.NEGATIVE_INFINITY
  const epochMs = (1000 * config.blocks * config.blockSamples) / speedsOf(state).all
  return rounds.from.at + Math.min(roundLengthMs(state), epochMs)
}

/** With `update: all`: those that are waited for do not ask, or get no block that is left. */
export function isForsaken({ open, config }: RunState, now: number): boolean {
  return open.since !== undefined && now - open.since > config.timing.leaseMinMs
}

/**
 * It begins its next round from the version that takes in its last one. One whose round was late for its version begins
 * at once: the next version is most of a round away.
 */
export function isWaitingForItsVersion({ open }: RunState): (member: Member) => boolean {
  return ({ id }) => open.fresh.has(id)
}

// Validation blocks are leased like training blocks, at one version, while training rests there.
import {
  type BlockId,
  type LeaseToken,
  type MemberId,
  type MessageFrom,
  validationBlock,
} from '@starling-grid/protocol'
import { resultsOf } from './journal-replay.ts'
import { currentEpoch, trainingIsOver } from './scheduler.ts'
import type { Lease, RunState, ValidationRun } from './state.ts'
import type { Turn } from './turn.ts'

/** Blocks in one lease: small enough that a departed member's part is soon done by others. */
const BLOCKS_PER_LEASE = 16

/** Every n-th epoch's end, and always the end of the run. */
export function validationDue(state: RunState): boolean {
  const { config, chain } = state
  if (validationBlocks(state) === 0 || chain.head.v === 0) return false
  if (resultsOf(state, chain.head.id).size >= validationBlocks(state)) return false
  if (trainingIsOver(state)) return true
  const last = chain.records.at(-1)?.blocks[0]
  const ended = last !== undefined && currentEpoch(state) > Number(last.slice(0, last.indexOf(':')))
  return ended && currentEpoch(state) % config.validateEvery === 0
}

/** Without those that are set aside. */
export function validationBlocks({ config, quarantined }: RunState): number {
  let aside = 0
  for (const block of quarantined) if (block.startsWith('v:')) aside++
  return config.validationBlocks - aside
}

/**
 * Grants what is left to these members, round and round, and renews what is overdue; to others, too, when none of these
 * answers.
 */
export function grantValidation(turn: Turn, first: readonly MemberId[], others: readonly MemberId[] = []): void {
  const { state, now } = turn
  const version = state.chain.head
  if (state.validation?.version.id !== version.id)
    state.validation = { version, leases: new Map(), late: new Set(), resting: new Map() }
  const { leases, late, resting } = state.validation
  for (const [block, { deadline, holder }] of leases) if (deadline < now && leases.delete(block)) late.add(holder)
  const members = first.every((member) => late.has(member)) ? [...new Set([...first, ...others])] : first
  if (members.every((member) => late.has(member))) late.clear() // all in turn again
  const results = resultsOf(state, version.id)
  const busy = new Set([...leases.values()].map((lease) => lease.holder))
  const free = Array.from({ length: state.config.validationBlocks }, (_, i) => validationBlock(i)).filter(
    (block) => !leases.has(block) && !results.has(block) && !state.quarantined.has(block),
  )
  for (const member of members) {
    if (busy.has(member) || late.has(member) || now < (resting.get(member)?.until ?? 0) || free.length === 0) continue
    const granted = lease(turn, member, free.splice(0, BLOCKS_PER_LEASE), leases)
    turn.send(member, { type: 'validate', version, leases: granted })
  }
  turn.reason(`validating version ${version.v}: ${results.size} of ${validationBlocks(state)} blocks`)
}

/**
 * Numbers of leases that one journal row reserves: a member that asks for work again and again writes next to nothing.
 */
const LEASES_RESERVED = 1000

/**
 * A lease has a number above all before it: an older holder's answer is stale. That it is used is durable before it is
 * sent.
 */
export function lease(
  turn: Turn,
  holder: MemberId,
  blocks: readonly BlockId[],
  leases: Map<BlockId, Lease>,
): LeaseToken[] {
  const { state, now } = turn
  const leaseEpoch = ++state.leaseEpoch
  if (leaseEpoch > state.leasesReserved) turn.journal({ type: 'lease', reserved: leaseEpoch + LEASES_RESERVED })
  const deadline = now + leaseMs(state, holder)
  for (const block of blocks)
    leases.set(block, { holder, base: state.chain.head.v, leaseEpoch, grantedAt: now, deadline })
  return blocks.map((block) => ({ block, leaseEpoch }))
}

/** Times as long a lease for a hidden tab: browsers slow those down without a word. */
const HIDDEN_LEASE = 2

/** 3 × the volunteer's moving average, doubled for each consecutive lease that it missed, clamped. */
export function leaseMs(state: RunState, holder: MemberId): number {
  const { leaseMinMs, leaseMaxMs } = state.config.timing
  const member = state.members.get(holder)
  const measured = member?.pushMs ?? 0
  const expected = Math.ceil(measured === 0 ? 6 * leaseMinMs : 3 * measured) * 2 ** (member?.misses ?? 0)
  return Math.min(leaseMaxMs, Math.max(leaseMinMs, expected) * (member?.hidden === true ? HIDDEN_LEASE : 1))
}

export function validated(turn: Turn, member: MemberId, message: MessageFrom<'validated'>): void {
  const { state } = turn
  const { version, lease: token, samples, targets, correct, lossSum } = message
  const held = state.validation?.leases.get(token.block)
  if (
    held === undefined ||
    held.holder !== member ||
    held.leaseEpoch !== token.leaseEpoch ||
    state.validation?.version.id !== version.id
  )
    return turn.refuse(member, 'lease-stale', `validation block ${token.block} is not yours`)
  if (correct > targets) return turn.refuse(member, 'message-malformed', `${correct} of ${targets} targets right`)
  state.validation.leases.delete(token.block)
  state.validation.late.delete(member)
  if (state.phase.type === 'ring') state.phase.progressAt = turn.now
  turn.journal({ type: 'validated', version, block: token.block, samples, targets, correct, lossSum })
  if (resultsOf(state, version.id).size >= validationBlocks(state)) {
    const { accuracy } = summary(state, version.id)
    turn.note('validation', `version ${version.v}: accuracy ${(100 * accuracy).toFixed(2)} %`)
  }
  turn.then({ type: 'advance' })
}

/** ms before a member that gave blocks back is asked again: at first, and at most; twice as long each time */
const REST_MS = 1000
const LONGEST_REST_MS = 60_000

/** What it needs for them could not be had there: others are asked first, and it rests. */
export function rest({ now }: Turn, { resting, late }: ValidationRun, member: MemberId): void {
  const times = (resting.get(member)?.times ?? 0) + 1
  resting.set(member, { times, until: now + Math.min(LONGEST_REST_MS, REST_MS * 2 ** (times - 1)) })
  late.add(member)
}

/** Accuracy and mean loss of a version over the targets of the blocks that were validated. */
export function summary(
  state: RunState,
  id: string,
): { readonly samples: number; readonly accuracy: number; readonly loss: number } {
  let samples = 0
  let targets = 0
  let correct = 0
  let lossSum = 0
  for (const result of resultsOf(state, id).values()) {
    samples += result.samples
    targets += result.targets
    correct += result.correct
    lossSum += result.lossSum
  }
  return { samples, accuracy: correct / Math.max(1, targets), loss: lossSum / Math.max(1, targets) }
}

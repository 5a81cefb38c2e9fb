// Who computes which block, until when: leases of training and of validation.
import type { BlockId, LeaseToken, MemberId } from '@starling-grid/protocol'
import type { Lease, Member, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'

type Leases = Map<BlockId, Lease>

/**
 * Numbers of leases that one journal row reserves: a member that asks for work again and again writes next to nothing.
 */
const LEASES_RESERVED = 1000

interface NewLeases {
  readonly holder: MemberId
  readonly blocks: readonly BlockId[]
  /** until it expires; otherwise as long as this holder should need */
  readonly ms?: number
}

/**
 * A lease has a number above all before it: an older holder's answer is stale. That it is used is durable before it is
 * sent.
 */
export function lease(
  transition: Transition,
  leases: Leases,
  { holder, blocks, ms = leaseMs(transition.state, holder) }: NewLeases,
): LeaseToken[] {
  const { state, now } = transition
  const leaseEpoch = ++state.leaseEpoch
  if (leaseEpoch > state.leasesReserved) transition.journal({ type: 'lease', reserved: leaseEpoch + LEASES_RESERVED })
  const deadline = now + ms
  const leased: Lease = { holder, base: state.chain.head.v, leaseEpoch, grantedAt: now, deadline }
  for (const block of blocks) leases.set(block, leased)
  const member = state.members.get(holder)
  if (member !== undefined && leases === state.leases) member.granted = { leaseEpoch, blocks }
  return blocks.map((block) => ({ block, leaseEpoch }))
}

/** Times as long a lease for a hidden tab: browsers slow those down without notice. */
const HIDDEN_LEASE = 2

/**
 * 3 × the volunteer's moving average, doubled for each consecutive lease that it missed, clamped. `missed`: leases of a
 * validation that it missed.
 */
export function leaseMs(state: RunState, holder: MemberId, missed = 0): number {
  const { leaseMinMs, leaseMaxMs } = state.config.timing
  const member = state.members.get(holder)
  const measured = member?.pushMs ?? 0
  const expected =
    Math.ceil(measured === 0 ? 6 * leaseMinMs : 3 * measured) * 2 ** (missed + (member?.missedLeases ?? 0))
  return Math.min(leaseMaxMs, Math.max(leaseMinMs, expected) * (member?.hidden === true ? HIDDEN_LEASE : 1))
}

/** Of its last grant: it has no others. Returns whether it held any. */
export function releaseAll(leases: Leases, { id, granted }: Pick<Member, 'id' | 'granted'>): boolean {
  const held = (granted?.blocks ?? []).filter((block) => leases.get(block)?.holder === id)
  for (const block of held) leases.delete(block)
  return held.length > 0
}

/** False: the lease is not this member's any more. */
export function takeBack(leases: Leases, member: MemberId, { block, leaseEpoch }: LeaseToken): boolean {
  const held = leases.get(block)
  return held?.holder === member && held.leaseEpoch === leaseEpoch && leases.delete(block)
}

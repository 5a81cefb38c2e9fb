// Who computes which block, until when: leases of training and of validation.
import type { BlockId, LeaseToken, MemberId } from '@starling-grid/protocol'
import type { Lease, Member, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'

type Leases = Map<BlockId, Lease>

/** Changes that are remembered at most: beyond them a look at everything costs as little. */
const MOST_REMEMBERED = 65_536

interface LeasesOfGrant {
  readonly lease: Lease
  /** of it that are leased still */
  blocks: number
}

/**
 * The leases of training. A crowd holds hundreds of thousands, and pushes hundreds of times in a second. So the grants
 * that they belong to are counted as leases come and go, and what came and went is remembered for those that would
 * otherwise look at all of them.
 */
export class LeaseTable extends Map<BlockId, Lease> {
  /** by their numbers, the oldest first */
  readonly #grants = new Map<number, LeasesOfGrant>()
  /** undefined: not remembered */
  #holders: Set<MemberId> | undefined
  #freed: BlockId[] | undefined
  /** ms: no lease is overdue before */
  #noneBefore = Number.POSITIVE_INFINITY

  get grantCount(): number {
    return this.#grants.size
  }

  /** One lease of each grant that is not over, the oldest first. */
  *grants(): Generator<Lease> {
    for (const { lease: one } of this.#grants.values()) yield one
  }

  /** Members that hold leases. */
  holders(): Set<MemberId> {
    const holders = new Set<MemberId>()
    for (const { holder } of this.grants()) holders.add(holder)
    return holders
  }

  /** Those whose time is over, the oldest first. All of a grant have one deadline. */
  overdue(now: number): (readonly [BlockId, Lease])[] {
    if (now <= this.#noneBefore) return []
    this.#noneBefore = Number.POSITIVE_INFINITY
    for (const { deadline } of this.grants()) this.#noneBefore = Math.min(this.#noneBefore, deadline)
    return now <= this.#noneBefore ? [] : [...this].filter(([, { deadline }]) => deadline < now)
  }

  /** Whose leases came or went since this was asked last; undefined: they are not remembered. */
  takeChangedHolders(): ReadonlySet<MemberId> | undefined {
    const holders = this.#holders
    this.#holders = new Set()
    return holders
  }

  /** Blocks whose leases ended since this was asked last; undefined: they are not remembered. */
  takeFreed(): readonly BlockId[] | undefined {
    const freed = this.#freed
    this.#freed = []
    return freed
  }

  override set(block: BlockId, leased: Lease): this {
    const before = this.get(block)
    if (before !== undefined) this.#ended(block, before)
    const grant = this.#grants.get(leased.leaseEpoch)
    if (grant === undefined) this.#grants.set(leased.leaseEpoch, { lease: leased, blocks: 1 })
    else grant.blocks++
    this.#noneBefore = Math.min(this.#noneBefore, leased.deadline)
    this.#changed(leased.holder)
    return super.set(block, leased)
  }

  override delete(block: BlockId): boolean {
    const leased = this.get(block)
    if (leased !== undefined) this.#ended(block, leased)
    return super.delete(block)
  }

  override clear(): void {
    this.#grants.clear()
    this.#holders = undefined
    this.#freed = undefined
    super.clear()
  }

  #ended(block: BlockId, { leaseEpoch, holder }: Lease): void {
    const grant = this.#grants.get(leaseEpoch)
    if (grant !== undefined && --grant.blocks === 0) this.#grants.delete(leaseEpoch)
    this.#changed(holder)
    if (this.#freed === undefined) return
    if (this.#freed.length < MOST_REMEMBERED) this.#freed.push(block)
    else this.#freed = undefined
  }

  #changed(holder: MemberId): void {
    if (this.#holders === undefined) return
    this.#holders.add(holder)
    if (this.#holders.size > MOST_REMEMBERED) this.#holders = undefined
  }
}

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

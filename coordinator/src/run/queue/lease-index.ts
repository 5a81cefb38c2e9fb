// The leases of training, and what would cost a look at all of them: their grants, and what changed.
import type { BlockId, MemberId } from '@starling-grid/protocol'

export interface Lease {
  readonly holder: MemberId
  /** number of the version that it is computed at */
  readonly base: number
  readonly leaseEpoch: number
  readonly grantedAt: number
  readonly deadline: number
}

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
export class LeaseIndex extends Map<BlockId, Lease> {
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

// START HERE: one training step on one member of the ring, top to bottom.
// batch → forward and backward, whose finished buckets enter the ring already → reduce → update. In a local round:
// inner steps → reduce of their difference → outer update.
import type { Manifest } from '@starling-grid/protocol'
import { bytesOf } from './collective/numbers.ts'
import type { StepSum } from './collective/step-reduce.ts'
import { sha256Of } from './data/shards.ts'
import type { MemberInput } from './sync/member-state.ts'
import type { ShareResult } from './sync/share-sum.ts'

/**
 * What a step needs of its member. `tell` asks the protocol (sync/member.ts) and carries out what it answers, at once.
 */
export interface StepMember {
  /**
   * Σ gradients of this member's share, which may lose blocks to others or get some of theirs; buckets that are final
   * leave before the rest (sync/share-work.ts).
   */
  gradientOfShare(order: StepOrder): Promise<ShareResult | undefined>
  /** Inner steps on this member's share, while the generation lasts (sync/local-round.ts). */
  localRound(order: StepOrder): Promise<ShareResult | undefined>
  tell(input: MemberInput): void
  /** The sum of this step, when every sum and manifest arrived; never, when the generation ends before. */
  reduced(gen: number, step: number): Promise<StepSum>
}

export interface StepOrder {
  readonly gen: number
  readonly step: number
  readonly kind: 'ring' | 'round'
}

export async function trainStep(order: StepOrder, member: StepMember): Promise<void> {
  const { gen, step, kind } = order
  const share = kind === 'round' ? await member.localRound(order) : await member.gradientOfShare(order)
  if (share === undefined) return // the generation ended, and the step with it
  member.tell({ type: 'computed', gen, step, manifest: manifestOf(share), finite: share.finite }) // → contribute (R9)
  const { sum, manifests } = await member.reduced(gen, step)
  // → apply and swap, HELD (R10)
  member.tell({ type: 'reduced', gen, step, manifests, gradDigest: await sha256Of(bytesOf(sum)) })
}

/** Sums, never means: the division by Σ targets happens once, after the reduce. */
function manifestOf({ blocks, samples, sums: { targets, lossSum, correct } }: ShareResult): Manifest {
  return { blocks, samples, targets, lossSum, correct }
}

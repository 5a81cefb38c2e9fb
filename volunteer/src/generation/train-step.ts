// START HERE: one training step on one member of the ring, top to bottom.
// batch → forward and backward, whose finished buckets enter the ring already → reduce → update. In a local round:
// inner steps → reduce of their difference → outer update.
import type { Manifest } from '@starling-grid/protocol'
import { bytesOf } from '../codec/numbers.ts'
import { sha256Of } from '../data/shards.ts'
import type { MemberInput } from '../member/member-state.ts'
import type { StepSum } from '../reduce/step-reduce.ts'
import type { AssignmentResult } from './assignment-sum.ts'

/**
 * What a step needs of its member. `tell` asks the protocol (sync/member.ts) and carries out what it answers, at once.
 */
export interface StepMember {
  /**
   * Σ gradients of this member's assignment, which may lose blocks to others or get some of theirs; buckets that are
   * final leave before the rest (sync/assignment-work.ts).
   */
  gradientOfAssignment(order: StepId): Promise<AssignmentResult | undefined>
  /** Inner steps on this member's assignment, while the generation lasts (sync/local-round.ts). */
  localRound(order: StepId): Promise<AssignmentResult | undefined>
  tell(input: MemberInput): void
  /** The sum of this step, when every sum and manifest arrived; never, when the generation ends before. */
  reduced(generation: number, step: number): Promise<StepSum>
}

export interface StepId {
  readonly generation: number
  readonly step: number
  readonly kind: 'ring' | 'round'
}

export async function trainStep(order: StepId, member: StepMember): Promise<void> {
  const { generation, step, kind } = order
  const assignment = kind === 'round' ? await member.localRound(order) : await member.gradientOfAssignment(order)
  if (assignment === undefined) return // the generation ended, and the step with it
  member.tell({ type: 'computed', generation, step, manifest: manifestOf(assignment), finite: assignment.finite }) // → contribute (R9)
  const { sum, manifests } = await member.reduced(generation, step)
  // → apply and swap, HELD (R10)
  member.tell({ type: 'reduced', generation, step, manifests, gradDigest: await sha256Of(bytesOf(sum)) })
}

/** Sums, never means: the division by Σ targets happens once, after the reduce. */
function manifestOf({ blocks, samples, sums: { targets, lossSum, correct } }: AssignmentResult): Manifest {
  return { blocks, samples, targets, lossSum, correct }
}

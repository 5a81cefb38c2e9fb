// START HERE: one training step on one member, top to bottom.
// batch → forward and backward, whose finished buckets enter the reduce already → reduce → update. In a local round:
// inner steps → reduce of their difference → outer update.
import type { Manifest } from '@starling-grid/protocol'
import { bytesOf } from '../codec/numbers.ts'
import type { Batches } from '../data/batch.ts'
import type { EarlyRanges } from '../graph/executor.ts'
import type { StepId } from '../member/assignment.ts'
import type { AssignmentResult, AssignmentWork } from './assignment-work.ts'
import type { Generation } from './generation.ts'

export interface StepOrder extends StepId {
  readonly kind: 'ring' | 'round'
}

export async function trainStep(order: StepOrder, generation: Generation): Promise<void> {
  const { tell, batches } = generation
  const at = { generation: order.generation, step: order.step }

  // batch, forward, backward: each bucket enters the reduce while backward goes on with the next
  const overlap: Overlap = (bucket, encoded) => generation.contributeBucket(at, bucket, encoded)
  const share =
    order.kind === 'round'
      ? await generation.localRound(at)
      : await computeAssignment(generation.assignmentOf(at), batches, overlap)
  if (share === undefined) return // the generation ended, and the step with it

  // reduce: what is left of the gradient enters it, and the manifest (R9)
  tell({ type: 'computed', ...at, manifest: manifestOf(share), finite: share.finite })
  const { sum, manifests } = await generation.reduced()

  // update: mean, clip and optimizer while another thread hashes the sum; swap in one piece, then HELD (R10)
  const hashed = generation.digestOf(bytesOf(sum))
  generation.prepare(order, { sum, manifests })
  const gradDigest = await hashed
  generation.stage({ sum, isOwn: true })
  tell({ type: 'reduced', ...at, manifests, gradDigest })
}

/** Takes the buckets of the gradient, as `onFinal` of EarlyRanges tells of them. */
export type Overlap = EarlyRanges['onFinal']

/**
 * Piece by piece, because blocks that are not begun may go to faster members (R12). Undefined: the generation ended
 * before.
 */
export async function computeAssignment(
  work: AssignmentWork,
  batches: Pick<Batches, 'of'>,
  overlap: Overlap,
): Promise<AssignmentResult | undefined> {
  try {
    for (let next = work.next(); next !== 'over'; next = work.next()) {
      if (next === 'complete') return work.finish()
      if (next === 'wait') await work.mayGoOn()
      else await work.add({ blocks: next, batch: await batches.of(next) }, overlap)
    }
    return undefined
  } finally {
    work.stopClock()
  }
}

/** Sums, never means: the division by Σ targets happens once, after the reduce. */
function manifestOf({ blocks, samples, sums: { targets, lossSum, correct } }: AssignmentResult): Manifest {
  return { blocks, samples, targets, lossSum, correct }
}

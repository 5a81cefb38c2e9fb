// START HERE: one training step on one member of the ring, top to bottom.
// batch → forward and backward → reduce → update. In a local round: inner steps → reduce of their difference → outer update.
import type { BlockId, Manifest } from '@starling-grid/protocol'
import type { RingReduce } from './collective/ring-reduce.ts'
import type { Compute } from './compute.ts'
import type { Batches } from './data/batch.ts'
import { sha256Of } from './data/shards.ts'
import type { BatchSums } from './graph/executor.ts'
import type { RoundResult } from './sync/local-round.ts'
import type { MemberInput } from './sync/member-state.ts'

/** What a step needs of its member. `tell` asks the protocol (sync/member.ts) and carries out what it answers, at once. */
export interface StepMember {
  readonly batches: Batches
  readonly compute: Compute
  /** Inner steps on these blocks, while the generation lasts (sync/local-round.ts). */
  localRound(gen: number, blocks: readonly BlockId[]): Promise<RoundResult | undefined>
  tell(input: MemberInput): void
  /** The reduce of this step, when every sum and manifest arrived; never, when the generation ends before. */
  reduced(gen: number, step: number): Promise<RingReduce>
}

export interface StepOrder {
  readonly gen: number
  readonly step: number
  readonly kind: 'ring' | 'round'
  /** this member's share of the global batch, or of the round */
  readonly blocks: readonly BlockId[]
}

export async function trainStep({ gen, step, kind, blocks }: StepOrder, member: StepMember): Promise<void> {
  const share = kind === 'round' ? await member.localRound(gen, blocks) : await gradientOf(blocks, member)
  if (share === undefined) return // the generation ended, and the round with it
  member.tell({ type: 'computed', gen, step, manifest: manifestOf(blocks, share.samples, share.sums), finite: share.finite }) // → contribute (R9)
  const { sum, manifests } = await member.reduced(gen, step)
  member.tell({ type: 'reduced', gen, step, manifests, gradDigest: await sha256Of(bytesOf(sum)) }) // → apply and swap, HELD (R10)
}

async function gradientOf(blocks: readonly BlockId[], { batches, compute }: StepMember): Promise<RoundResult> {
  const batch = await batches.of(blocks)
  return { samples: batch.samples, ...(await compute.heldGradient(batch)) }
}

/** Sums, never means: the division by Σ targets happens once, after the reduce. */
function manifestOf(blocks: readonly BlockId[], samples: number, { targets, lossSum, correct }: BatchSums): Manifest {
  return { blocks, samples, targets, lossSum, correct }
}

export function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
}

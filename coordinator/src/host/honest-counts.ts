// Numbers that follow from the blocks: the mean divides by the targets, loss and accuracy are weighted by them. What a
// volunteer says of them is compared with the dataset before a decision sees it.
import { type ModelSpec, targetsPerSample } from '@starling-grid/model'
import { type BlockId, blockIndex, GridError } from '@starling-grid/protocol'
import type { Job } from '../jobs/jobs.ts'
import type { RunMessage } from '../run/state.ts'

export interface ClaimedCounts {
  readonly blocks: readonly BlockId[]
  readonly samples: number
  readonly targets: number
  readonly correct: number
}

/** @throws GridError 'message-malformed' when the numbers are not those of the blocks */
export function requireHonestCounts(
  { training, validation, form }: Job,
  { blocks, samples, targets, correct }: ClaimedCounts,
): void {
  const expected = blocks.reduce(
    (sum, block) => sum + ((block.startsWith('v:') ? validation : training).at(blockIndex(block))?.samples ?? 0),
    0,
  )
  if (samples !== expected)
    throw new GridError('message-malformed', `expected ${expected} samples in these blocks, got ${samples}`)
  const max = samples * targetsOf(form.spec)
  // Which targets are ignored is written in the shards, which are not read here: then the number is bounded only.
  const plausible = form.spec.ignore_index === undefined ? targets === max : targets <= max
  if (!plausible || correct > targets)
    throw new GridError(
      'message-malformed',
      `expected at most ${max} targets in ${samples} samples, got ${targets}, ${correct} of them right`,
    )
}

/** The shapes of a model's layers are not worked out again for every push. */
function targetsOf(spec: ModelSpec): number {
  const targets = targetsByModel.get(spec) ?? targetsPerSample(spec)
  targetsByModel.set(spec, targets)
  return targets
}

const targetsByModel = new WeakMap<ModelSpec, number>()

/** @throws GridError 'message-malformed' for a record, a claim or a validation result that no honest member sends */
export function requireHonestMessage(job: Job, message: RunMessage): void {
  if (message.type === 'held') requireHonestCounts(job, message.record)
  if (message.type === 'state') for (const record of message.claim?.records ?? []) requireHonestCounts(job, record)
  if (message.type !== 'validated') return
  const { lease, samples, targets, correct } = message
  requireHonestCounts(job, { blocks: [lease.block], samples, targets, correct })
}

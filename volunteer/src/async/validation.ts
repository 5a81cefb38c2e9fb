// Leased validation blocks: forward only, at one named version. What cannot be computed here goes back to the
// coordinator.
import {
  describeError,
  type ErrorCode,
  isGridError,
  type LeaseToken,
  type MessageTo,
  type ToCoordinator,
  type VersionRef,
} from '@starling-grid/protocol'
import type { Compute, NamedParameters } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import { endsWork } from '../fatal.ts'

export interface ValidationParts {
  readonly compute: Pick<Compute, 'evaluate'>
  readonly batches: Pick<Batches, 'of'>
  /** parameters of the version, held or pulled */
  parametersOf(version: VersionRef): Promise<NamedParameters>
  send(message: ToCoordinator): void
  /** the coordinator leased other blocks since, and refuses these */
  isStale(): boolean
}

/**
 * Answers lease by lease, so that what is done counts even if this volunteer leaves in the middle. @throws what is
 * fatal (fatal.ts)
 */
export async function validateLeases(
  { version, leases }: MessageTo<'validate'>,
  parts: ValidationParts,
): Promise<void> {
  let left = leases
  try {
    const parameters = await parts.parametersOf(version)
    for (const lease of leases) {
      if (parts.isStale()) return
      await validate(version, lease, { ...parts, parameters })
      left = left.filter((one) => one !== lease)
    }
  } catch (error) {
    if (endsWork(error)) throw error
    giveBack(left, error, parts.send)
  }
}

/** A block of which the shard is damaged costs no other block. */
async function validate(
  version: VersionRef,
  lease: LeaseToken,
  { parameters, batches, compute, send }: ValidationParts & { readonly parameters: NamedParameters },
): Promise<void> {
  try {
    const batch = await batches.of([lease.block])
    const { lossSum, targets, correct, tally } = await compute.evaluate(parameters, batch)
    const sums = { samples: batch.samples, targets, correct, lossSum, ...(tally === undefined ? {} : { tally }) }
    send({ type: 'validated', version, lease, ...sums })
  } catch (error) {
    if (!isOfTheBlock(error)) throw error
    giveBack([lease], error, send)
  }
}

/** The coordinator answers, and has no such shard or a damaged one: other blocks may be whole. */
function isOfTheBlock(error: unknown): boolean {
  return isGridError(error) && (error.code === 'shard-corrupt' || error.code === 'message-unexpected')
}

const MOST_TEXT = 300

/** R14: the coordinator leases them again. */
export function giveBack(leases: readonly LeaseToken[], error: unknown, send: (message: ToCoordinator) => void): void {
  if (leases.length === 0) return
  const code: ErrorCode = isGridError(error) ? error.code : 'message-unexpected'
  send({ type: 'gave-back', leases: [...leases], code, message: describeError(error).slice(0, MOST_TEXT) })
}

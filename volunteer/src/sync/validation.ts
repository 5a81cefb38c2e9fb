// Leased validation blocks: forward only, at one named version.
import type { MessageTo, ToCoordinator, VersionRef } from '@starling-grid/protocol'
import type { Compute, NamedParameters } from '../compute.ts'
import type { Batches } from '../data/batch.ts'

export interface ValidationParts {
  readonly compute: Compute
  readonly batches: Batches
  /** parameters of the version, held or pulled */
  parametersOf(version: VersionRef): Promise<NamedParameters>
  send(message: ToCoordinator): void
}

/** Answers lease by lease, so that what is done counts even if this volunteer leaves in the middle. */
export async function validateLeases({ version, leases }: MessageTo<'validate'>, parts: ValidationParts): Promise<void> {
  const parameters = await parts.parametersOf(version)
  for (const lease of leases) {
    const batch = await parts.batches.of([lease.block])
    const { lossSum, targets, correct } = await parts.compute.evaluate(parameters, batch)
    parts.send({ type: 'validated', version, lease, samples: batch.samples, targets, correct, lossSum })
  }
}

// What a job requires of the machines that take part, beyond what its model needs. A volunteer without it leaves the
// job before it fetches anything, and says why. Pure.
import {
  type AdapterDescription,
  describeError,
  GridError,
  isGridError,
  type Requirements,
} from '@starling-grid/protocol'
import type { OwnLimits } from './own-limits.ts'

const BYTES_PER_GB = 1e9

/** @throws GridError 'requirement-unmet' when the owner allows less */
export function requireMemory({ memory = 0 }: Requirements, { memoryBytes }: Pick<OwnLimits, 'memoryBytes'>): void {
  if (memory * BYTES_PER_GB <= memoryBytes) return
  throw new GridError(
    'requirement-unmet',
    `expected ${memory} GB of memory, which the job requires, got a limit of ${memoryBytes / BYTES_PER_GB} GB; ` +
      'raise --max-memory, in a browser "Memory" under Limits, or take part in another job',
  )
}

/** @throws GridError 'requirement-unmet' when no GPU stands behind the adapter, or it lacks shader-f16 */
export function requireAdapter({ realGpu = false, f16 = false }: Requirements, adapter: AdapterDescription): void {
  if (realGpu && (adapter.software || adapter.executor !== 'webgpu'))
    throw new GridError(
      'requirement-unmet',
      `expected a real GPU, which the job requires, got ${adapter.name}, which computes on the processor; ` +
        'use a machine with a GPU, or take part in another job',
    )
  if (f16 && adapter.f16 !== true)
    throw new GridError(
      'requirement-unmet',
      `expected an adapter with the feature shader-f16, which the job requires, got ${adapter.name} without it; ` +
        'choose another with --adapter, or take part in another job',
    )
}

/** Where only an adapter will do, a machine without one leaves this job, and takes others. */
export function unmetWithoutAdapter({ f16 = false }: Requirements, error: unknown): unknown {
  if (!f16 || !isGridError(error) || error.code !== 'no-adapter') return error
  return new GridError(
    'requirement-unmet',
    `expected an adapter with the feature shader-f16, which the job requires, got none: ${describeError(error)}`,
  )
}

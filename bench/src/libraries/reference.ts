// The common reference of every comparison: Starling's plain TypeScript kernels, which golden vectors hold to PyTorch's
// float64.
import { createReferenceExecutor, REFERENCE_ADAPTER, ReferenceRunner } from '@starling-grid/volunteer'
import type { Library } from '../library.ts'
import { starling } from './starling.ts'

export function reference(): Library {
  return starling({
    name: 'reference',
    adapter: REFERENCE_ADAPTER.name,
    createRunner: async (graph, capacity) => new ReferenceRunner(graph, capacity),
    createExecutor: async (spec) => createReferenceExecutor(spec),
  })
}

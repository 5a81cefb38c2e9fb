// Golden cases: what PyTorch computed, against what an executor computes.

import type { GoldenBackend, GoldenCase, GoldenResult } from './case.ts'
import { runOpCase } from './op-case.ts'
import { runTrajectory } from './trajectory.ts'

export { readGoldenCase, type Comparison, type GoldenBackend, type GoldenCase, type GoldenResult } from './case.ts'

/** Runs one case: an operator when it names an `op`, else a training run. */
export function runGoldenCase(golden: GoldenCase, backend: GoldenBackend): Promise<GoldenResult> {
  return 'op' in golden.description ? runOpCase(golden, backend) : runTrajectory(golden, backend)
}

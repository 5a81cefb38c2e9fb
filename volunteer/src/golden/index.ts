// Golden cases: what PyTorch computed, against what an executor computes.

import type { GoldenBackend, GoldenCase, GoldenResult } from './case.ts'
import { runLanguageCase } from './language.ts'
import { runOpCase } from './op-case.ts'
import { runTrajectory } from './trajectory.ts'

export { readGoldenCase, type Comparison, type GoldenBackend, type GoldenCase, type GoldenResult } from './case.ts'

/** Runs one case: an operator when it names an `op`, a language model by its `config`, else a training run. */
export function runGoldenCase(golden: GoldenCase, backend: GoldenBackend): Promise<GoldenResult> {
  if ('config' in golden.description) return runLanguageCase(golden, backend)
  return 'op' in golden.description ? runOpCase(golden, backend) : runTrajectory(golden, backend)
}

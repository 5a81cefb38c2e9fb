// The speed of the run now, and when it will be done. Computed from the last committed steps alone, so that neither the
// start nor last night's pause counts.
import { samplesIn, type StepPoint } from '@starling-grid/protocol'
import type { Job } from '../jobs/jobs.ts'

/** Steps that the speed is measured over. */
const WINDOW = 32
/** ms without a commit from which on the silence itself counts */
const SILENT_MS = 5000

/** Samples per second; 0 before two steps were committed since `since` (ms since the epoch). */
export function speedOf(steps: readonly StepPoint[], now: number, since: number): number {
  const recent = steps.slice(-WINDOW).filter(({ at }) => at >= since)
  const [first, ...rest] = recent
  const last = rest.at(-1)
  if (first === undefined || last === undefined) return 0
  const until = now - last.at > SILENT_MS ? now : last.at
  const samples = rest.reduce((sum, step) => sum + step.samples, 0)
  return (1000 * samples) / Math.max(1, until - first.at)
}

/** Samples that the whole run commits; `epochs`: of the job, or fewer when its owner ended it early. */
export function samplesExpected({ spec, manifest }: Job, epochs: number): number {
  const all = epochs * samplesIn(manifest.train)
  return spec.maxSteps === undefined ? all : Math.min(all, spec.maxSteps * spec.batchBlocks * spec.blockSamples)
}

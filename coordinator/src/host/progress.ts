// The speed of the run now, and when it will be done. Computed from the last committed steps alone, so that neither the
// start nor last night's pause counts.
import { type JobSpec, samplesIn, type StepPoint } from '@starling-grid/protocol'
import type { Job } from '../jobs/jobs.ts'
import type { AppendedShards } from '../run/appended-shards.ts'

/** Steps that the speed is measured over. */
const WINDOW = 32
/** ms without a commit from which on the silence itself counts */
const SILENT_MS = 5000
const MINUTE_MS = 60_000

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

/** How far a run is. */
export interface Committed {
  readonly samples: number
  /** at most: of the job, or fewer when its owner ended it early */
  readonly epochs: number
  /** ms of training */
  readonly trainedMs: number
  /** data that joined the dataset meanwhile */
  readonly appended: readonly AppendedShards[]
  readonly steps: number
  /** of the newest one; undefined: none was made yet */
  readonly stepSamples: number | undefined
  /** before the last of these epochs: what was committed is all */
  readonly endedEarly: boolean
}

/** Samples that the whole run commits, as far as its bounds say; a target may end it sooner. */
export function samplesExpected({ spec, manifest }: Job, committed: Committed): number {
  const { samples, trainedMs, endedEarly } = committed
  if (endedEarly) return samples
  const { steps = Number.POSITIVE_INFINITY, minutes = Number.POSITIVE_INFINITY } = spec.stop
  const bySteps = samplesOfSteps(spec, committed, steps)
  const byMinutes = trainedMs > 0 ? (samples * minutes * MINUTE_MS) / trainedMs : Number.POSITIVE_INFINITY
  const max = Math.min(samplesOfEpochs(manifest, committed), bySteps, byMinutes)
  return Math.max(samples, Math.round(max))
}

/** Of all epochs; what was appended counts from the epoch that trains it first. */
function samplesOfEpochs({ train }: Job['manifest'], { epochs, appended }: Committed): number {
  const less = appended.reduce((sum, { epoch, shards }) => sum + Math.min(epoch, epochs) * samplesIn(shards), 0)
  return epochs * samplesIn(train) - less
}

/** With weak scaling steps to come are taken to be as large as the newest one. */
function samplesOfSteps({ batchBlocks, blockSamples, weakScaling }: JobSpec, made: Committed, steps: number): number {
  const usual = batchBlocks * blockSamples
  if (weakScaling === undefined) return steps * usual
  return made.samples + (steps - made.steps) * Math.max(usual, made.stepSamples ?? 0)
}

/** Seconds until a bound ends the run at this speed (samples/s); null: it is not at work. */
export function secondsLeft({ spec }: Job, committed: Committed & { readonly expected: number }, speed: number) {
  if (speed <= 0) return null
  const { minutes = Number.POSITIVE_INFINITY } = spec.stop
  const bySamples = (committed.expected - committed.samples) / speed
  return Math.max(0, Math.min(bySamples, (minutes * MINUTE_MS - committed.trainedMs) / 1000))
}

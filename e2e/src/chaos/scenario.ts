import type { Child, Grid, VolunteerProcessOptions, Watch } from '@starling-grid/cli'
// What a scenario of `chaos` is: how often something breaks, what breaks, and what is remembered of it.
import type { JobSpec, RunView, StepRecord } from '@starling-grid/protocol'

/** An instant after which the run had to find its way back. */
export interface InjectedFault {
  /** what happened to the others: a word for the result */
  readonly kind: string
  /** ms of the clock */
  readonly at: number
  /** that was running */
  readonly generation: number
  /** the version that a run of groups had, where no ballot follows */
  readonly version?: number
}

/** What a hostile volunteer did, and what became of it. */
export interface Attack {
  readonly attack: string
  /** the refusal's code */
  readonly code: string
  /** what the run says of it: the event that names it */
  readonly named: string
  readonly outcome: 'refused' | 'left out' | 'evicted'
  /** seconds: the longest time between two committed steps while it was there */
  readonly pause: number
}

/** What became of a member that got slow, and of the steps that it was in. */
export interface Slowness {
  /** its speed over the mean of the others' in its ring, as measured by themselves */
  readonly speed: BeforeAndAfter
  /** its part of a step, 0…1, and the smallest part of another member while it was slow */
  readonly fraction: BeforeAndAfter & { readonly others: number }
  /** ms between two committed steps, the median */
  readonly stepMs: BeforeAndAfter
  /** from its slowing down until its share was smaller than every other's, and than before */
  readonly secondsToFollow: number
}

export interface BeforeAndAfter {
  readonly before: number
  readonly slowed: number
}

export interface InjectionResult {
  readonly faults: readonly InjectedFault[]
  readonly attack?: Attack
  readonly slowness?: Slowness
}

export interface Injection {
  /** which blow this is: 0, 1, … */
  readonly number: number
  /** of volunteers that are started */
  readonly executor: 'webgpu' | 'reference'
  readonly random: () => number
  readonly say: (text: string) => void
}

export interface Scenario {
  readonly does: string
  /** Breaks something, and returns when the run goes on without it. */
  readonly strike: (grid: Grid, blow: Injection) => Promise<InjectionResult>
  /** what volunteers are started with */
  readonly volunteer?: Pick<VolunteerProcessOptions, 'entry' | 'env'>
  /** when the command line names none */
  readonly faults: number
  /** what its job has in place of a ring */
  readonly job?: Pick<JobSpec, 'mode' | 'groups'>
  /** when the command line names none; absent: 3 */
  readonly volunteers?: number
}

export function faultNow({ watch }: Grid, kind: string): InjectedFault {
  return { kind, at: Date.now(), generation: watch.run?.generation ?? 0 }
}

/** A later generation has committed a step, or the fault came after the last one. */
export async function goesOn({ watch }: Grid, { at, generation }: InjectedFault): Promise<void> {
  await watch.waitFor(
    'a step of a later generation',
    ({ run, steps }) =>
      run?.phase === 'finished' ||
      (run?.phase === 'ring' && run.generation > generation && (steps.at(-1)?.at ?? 0) > at),
  )
}

/** From the fault to the first step that a later generation committed, or to the next version of groups. */
export function secondsToRecover(
  { at, generation, version }: InjectedFault,
  records: readonly StepRecord[],
  steps: Watch['steps'],
): number {
  const next = records.find((record) => (version === undefined ? record.generation > generation : record.v > version))
  const committed = steps.find((step) => step.v === next?.v)?.at
  return committed === undefined ? Number.NaN : (committed - at) / 1000
}

/** A volunteer that a step depends on: the loss of a newcomer that still waits would show nothing. */
export function workingVolunteer({ watch, volunteers }: Grid, random: () => number, but?: Child): Child {
  const working = namesInRing(watch.run)
  const alive = volunteers.filter((child) => child !== but && child.alive() && working.has(child.name))
  const chosen = alive[random() % alive.length]
  if (chosen === undefined) throw new Error('internal: no volunteer works')
  return chosen
}

export function namesInRing(run: RunView | undefined): ReadonlySet<string> {
  return new Set(run?.members.filter(({ rank }) => rank !== null).map(({ name }) => name))
}

/** ms between neighbours of these steps, the median. */
export function medianPause(steps: Watch['steps']): number {
  const pauses = steps
    .slice(1)
    .map(({ at }, i) => at - (steps[i]?.at ?? at))
    .sort((a, b) => a - b)
  return pauses[pauses.length >> 1] ?? Number.NaN
}

export interface Percentiles {
  readonly p50: number
  readonly max: number
}

export function percentiles(values: readonly number[]): Percentiles {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b) // a run may end before it finds its way back
  return { p50: rounded(sorted[Math.floor(sorted.length / 2)]), max: rounded(sorted.at(-1)) }
}

/** Two digits after the point. */
export function rounded(value = 0): number {
  return Math.round(100 * value) / 100
}

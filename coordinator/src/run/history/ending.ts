// When a run ends, and why. Decides from what is recorded alone: how far the training is, and what validations found.
// Only confirmed validations count, so that no single member ends a run (R19).
import {
  type Measurements,
  measuredValue,
  type Metric,
  METRICS,
  MOST_BEST_CHECKPOINTS,
  MOST_EPOCHS,
  type StopRule,
  type VersionRef,
} from '@starling-grid/protocol'

/** A validated version. */
export interface Evaluation extends Measurements {
  readonly version: VersionRef
  /** of each block two members measured the same */
  readonly confirmed: boolean
  /** confirmed evaluations up to this one: its own number where it is confirmed */
  readonly count: number
}

/** How far a run is. */
export interface Progress {
  readonly steps: number
  /** begun ones count in part */
  readonly epochs: number
  /** epochs after which none follows; undefined: not reached */
  readonly endedWith: number | undefined
  /** ms of training (training-time.ts) */
  readonly trainedMs: number
  /** by version */
  readonly evaluations: readonly Evaluation[]
}

const MINUTE_MS = 60_000
/** Decimals of a metric in a sentence. */
const DIGITS = 4

/** Of the confirmed ones; of equals the first. */
export function bestOf(evaluations: readonly Evaluation[], metric?: Metric): Evaluation | undefined {
  return bestOnes(evaluations, metric, 1)[0]
}

/** So many of the confirmed ones, the best first; of equals the older. */
export function bestOnes(
  evaluations: readonly Evaluation[],
  metric: Metric | undefined = 'loss',
  max: number,
): Evaluation[] {
  const valueOf = (one: Evaluation): number => measuredValue(one, metric)
  const able = evaluations.filter((one) => one.confirmed && Number.isFinite(valueOf(one)))
  const worse = (a: Evaluation, b: Evaluation): number => Number(isBetter(metric, valueOf(b), valueOf(a)))
  return able.toSorted((a, b) => worse(a, b) - worse(b, a)).slice(0, max)
}

function isBetter(metric: Metric, value: number, than: number): boolean {
  return METRICS[metric].falls ? value < than : value > than
}

/** "ended after 3.2 epochs: accuracy 0.971 reached the target 0.97"; undefined: the run goes on. */
export function endOf(rule: StopRule, progress: Progress): string | undefined {
  const why = targetReached(rule, progress) ?? boundReached(rule, progress) ?? patienceOver(rule, progress)
  return why === undefined ? undefined : `ended after ${epochText(progress.epochs)}: ${why}`
}

function boundReached({ steps, minutes }: StopRule, progress: Progress): string | undefined {
  if (steps !== undefined && progress.steps >= steps) return `${plural(steps, 'step')} ${isOrAre(steps)} trained`
  if (progress.endedWith !== undefined) return allTrained(progress.endedWith)
  if (minutes !== undefined && progress.trainedMs >= minutes * MINUTE_MS)
    return `${plural(minutes, 'minute')} of training ${isOrAre(minutes)} over`
  return undefined
}

function targetReached({ metric = 'loss', target }: StopRule, { evaluations }: Progress): string | undefined {
  if (target === undefined) return undefined
  const best = bestOf(evaluations, metric)
  if (best === undefined || isBetter(metric, target, measuredValue(best, metric))) return undefined
  return `${METRICS[metric].name} ${shown(measuredValue(best, metric))} reached the target ${target}`
}

function patienceOver({ metric = 'loss', patience }: StopRule, { evaluations }: Progress): string | undefined {
  if (patience === undefined) return undefined
  const best = bestOf(evaluations, metric)
  const since = (evaluations.at(-1)?.count ?? 0) - (best?.count ?? 0)
  if (best === undefined || since < patience) return undefined
  const than = `${METRICS[metric].name} than ${shown(measuredValue(best, metric))}`
  return `no better ${than} of version ${best.version.v} in ${plural(since, 'validation')}`
}

/** Evaluations beside the best one that are remembered: a rewind goes less far back. */
const EVALUATIONS_KEPT = 64

/** With the newest one; the oldest go, and never one of the `max` best. */
export function withEvaluation(
  evaluations: readonly Evaluation[],
  newest: Omit<Evaluation, 'count'>,
  metric: Metric | undefined,
  max = 1,
): Evaluation[] {
  const count = (evaluations.at(-1)?.count ?? 0) + (newest.confirmed ? 1 : 0)
  const all = [...evaluations.filter(({ version }) => version.v < newest.version.v), { ...newest, count }]
  const best = new Set(bestOnes(all, metric, max))
  return all.filter((one, i) => best.has(one) || all.length - i <= EVALUATIONS_KEPT)
}

/** Most evaluations that withEvaluation keeps. */
export const MOST_EVALUATIONS = EVALUATIONS_KEPT + MOST_BEST_CHECKPOINTS

function epochText(epochs: number): string {
  const rounded = Number(epochs.toFixed(epochs < 1 ? 3 : 1))
  return plural(rounded, 'epoch')
}

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`
}

function allTrained(epochs: number): string {
  return epochs === 1 ? 'its epoch is trained' : `all ${epochs} epochs are trained`
}

function isOrAre(count: number): string {
  return count === 1 ? 'is' : 'are'
}

function shown(value: number): number {
  return Number(value.toPrecision(DIGITS))
}

/** Whether epochs end the run, so that people can be told of how many. */
export function areEpochsBounded(epochs: number): boolean {
  return epochs < MOST_EPOCHS
}

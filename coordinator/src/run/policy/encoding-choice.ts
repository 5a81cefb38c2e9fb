// Chooses the encoding of a run whose job says `auto`: the finest one that costs about as little time as any, of those
// that keep the loss. Encodes only where exchange is what costs. Pure; docs/STEPS.md has the rule in words.
import type { GradientEncoding } from '@starling-grid/protocol'

/** Of one round of a group: its push, and the version before it. */
export interface RoundBytes {
  readonly push: number
  readonly pull: number
}

/** One encoding that the job may use, the finest first. */
export interface EncodingRung {
  readonly encoding: GradientEncoding
  /** of a gradient or a difference as it travels */
  readonly bytes: number
  readonly roundBytes: RoundBytes
}

/** Bytes of both ways. */
export function bothWays({ push, pull }: RoundBytes): number {
  return push + pull
}

/** What a step or a round would take with it; undefined: nothing was measured that says it. */
export interface RungCost extends Pick<EncodingRung, 'encoding'> {
  readonly ms: number | undefined
}

/** What validations say of encodings that lose something. */
export interface LossWatch {
  /** number of evaluations that were looked at */
  readonly seen: number
  /** the lowest confirmed validation loss so far; undefined: none */
  readonly lowest: number | undefined
  /** from this rung on encodings are not used any more, since the loss rose with it */
  readonly barred: number
  /** why, in words */
  readonly why: string
}

export interface EncodingChoice {
  readonly encoding: GradientEncoding
  readonly reason: string
}

/** Times as fast that a lossier encoding must make a step; and that it must still be, to stay. */
const LOSSIER_PAYS = 1.1
const LOSSIER_STAYS = 1.03
/** Parts of the lowest loss that a validation may be above it: versions differ by as much anyway. */
const TOLERATED = 0.02

const UNMEASURED = 'what exchange takes is not measured yet'
export const UNWATCHED: LossWatch = { seen: 0, lowest: undefined, barred: Number.POSITIVE_INFINITY, why: '' }

/** The least lossy of the fastest. `now`: in use; a change costs a ballot, so it stays while it is about as good. */
export function chooseEncoding(
  costs: readonly RungCost[],
  now: EncodingChoice,
  watch: LossWatch,
  isWatched: boolean,
): EncodingChoice {
  const allowed = costs.slice(0, Math.max(1, watch.barred))
  const current = allowed.find(({ encoding }) => encoding === now.encoding)
  if (current === undefined) return { encoding: allowed.at(-1)?.encoding ?? 'f32', reason: watch.why }
  if (allowed.some(({ ms }) => ms === undefined))
    return { encoding: now.encoding, reason: now.reason === '' ? UNMEASURED : now.reason }
  const able = isWatched ? allowed : allowed.filter(({ encoding }) => encoding !== 'sparse2')
  const best = able.reduce((finer, one) => (timesFaster(one, finer) > LOSSIER_PAYS ? one : finer), able[0] ?? current)
  const stays = costs.indexOf(current) > costs.indexOf(best) && timesFaster(current, best) > LOSSIER_STAYS
  const chosen = stays ? current : best
  const unproven = able.length < allowed.length ? 'sparse2 waits for a confirmed validation to compare with' : ''
  return { encoding: chosen.encoding, reason: joined([costText(costs, chosen), unproven, watch.why]) }
}

/** After a validation: an encoding with which the loss rose is used no more, and no lossier one. */
export function watchLoss(
  watch: LossWatch,
  { loss, seen }: { readonly loss: number; readonly seen: number },
  rung: { readonly index: number; readonly encoding: GradientEncoding },
): LossWatch {
  const { lowest } = watch
  const rose = rung.index > 0 && lowest !== undefined && !(loss <= lowest * (1 + TOLERATED))
  if (!rose) return { ...watch, seen, lowest: Math.min(lowest ?? loss, loss) }
  const why = `validation loss rose from ${shown(lowest)} to ${shown(loss)} with ${rung.encoding}, not used again`
  return { ...watch, seen, barred: rung.index, why }
}

function timesFaster(one: RungCost, than: RungCost): number {
  return (than.ms ?? 0) / Math.max(one.ms ?? 0, 1e-6)
}

function costText(costs: readonly RungCost[], chosen: RungCost): string {
  const all = costs.map(({ encoding, ms = 0 }) => `${inWords(ms)} with ${encoding}`).join(', ')
  const finest = costs[0]
  if (chosen === finest) return `encoding would gain next to nothing: ${all}`
  return `${timesFaster(chosen, finest ?? chosen).toPrecision(2)} times as fast as ${finest?.encoding}: ${all}`
}

function inWords(ms: number): string {
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`
}

function joined(parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('; ')
}

function shown(value: number): number {
  return Number(value.toPrecision(3))
}

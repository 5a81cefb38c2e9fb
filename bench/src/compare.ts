// Libraries side by side on one task: first whether each computes the right thing, then how fast, in turns.
import { reference } from './libraries/reference.ts'
import type { Library, PreparedTask } from './library.ts'
import type { BenchPlace } from './places/place.ts'
import { type BenchRow, type Contender, race, rounded } from './row.ts'
import type { SuiteOptions } from './suite.ts'
import type { BenchTask } from './task.ts'

/** ‖its result − reference‖ ÷ ‖reference‖; more is a wrong kernel, not a fast one */
const TOLERANCE = 1e-4
/**
 * ms that one round of a contender lasts if one run is shorter: a read-back's latency and the clock then do not decide
 */
const ROUND_MS = 250
const MOST_REPEATS = 500
/** A peer that needs longer is named and left out: the rounds of one row would take minutes. */
const SLOWEST_RUN_MS = 10_000
const OURS = 'starling'

export interface BenchComparison {
  readonly name: string
  readonly task: BenchTask
  readonly unit: string
  readonly better?: 'less'
  /** the row's value, when one run takes so long */
  value(msOfOneRun: number): number
  /** what to measure instead of the time of `repeats` runs */
  measure?(prepared: PreparedTask, repeats: number): Promise<number>
  /** libraries that take part; all if absent */
  readonly only?: (library: Library) => boolean
}

interface Entrant {
  readonly library: Library
  readonly prepared: PreparedTask
  readonly firstRunMs: number
  readonly error: number
  /** a run after the first */
  readonly onceMs: number
}

/** One row, or nothing but an error when Starling itself is wrong. */
export async function compare(
  comparison: BenchComparison,
  place: BenchPlace,
  { rounds, log }: SuiteOptions,
): Promise<BenchRow> {
  const expected = await referenceResult(comparison.task)
  const missing: Record<string, string> = Object.fromEntries(place.missing.map(({ name, reason }) => [name, reason]))
  const entrants: Entrant[] = []
  try {
    for (const library of place.libraries.filter(comparison.only ?? (() => true))) {
      const entrant = await enter(library, comparison.task, expected)
      const verdict =
        typeof entrant === 'string' ? `is out: ${entrant}` : `is right, first run ${Math.round(entrant.firstRunMs)} ms`
      log(`${comparison.name}: ${library.name} ${verdict}`)
      if (typeof entrant === 'string') missing[library.name] = entrant
      else entrants.push(entrant)
    }
    const [ours, ...peers] = entrants
    if (ours?.library.name !== OURS)
      throw new Error(`${comparison.name}: nothing to time, because Starling is out: ${missing[OURS]}`)
    const { name, unit, better } = comparison
    const row = { name, unit, adapter: ours.library.adapter, ...(better ? { better } : {}) }
    const contenders: Record<string, Contender> = {}
    for (const peer of peers) contenders[peer.library.name] = contender(peer, comparison)
    const raced = await race(row, contender(ours, comparison), contenders, rounds)
    return { ...raced, ...notes(entrants), missing }
  } finally {
    for (const { prepared } of entrants) await prepared.close()
  }
}

async function referenceResult(task: BenchTask): Promise<Float32Array> {
  const prepared = await reference().prepare(task)
  const result = await prepared.result()
  await prepared.close()
  return result
}

/** Prepared and found right, or the reason why not. */
async function enter(library: Library, task: BenchTask, expected: Float32Array): Promise<Entrant | string> {
  try {
    const start = performance.now()
    const prepared = await library.prepare(task)
    const result = await prepared.result()
    const firstRunMs = performance.now() - start
    const error = relativeError(result, expected)
    const wrong = error < TOLERANCE ? undefined : `its result is wrong: off by ${error.toExponential(1)} of its norm`
    const onceMs = wrong === undefined ? await prepared.time(1) : 0
    const slow =
      onceMs < SLOWEST_RUN_MS ? undefined : `one run takes ${(onceMs / 1000).toFixed(0)} s, too long to repeat`
    const reason = wrong ?? slow
    if (reason === undefined) return { library, prepared, firstRunMs, error, onceMs }
    await prepared.close()
    return reason
  } catch (error) {
    return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
  }
}

function contender({ prepared, onceMs }: Entrant, { value, measure }: BenchComparison): Contender {
  const repeats = Math.max(1, Math.min(MOST_REPEATS, Math.ceil(ROUND_MS / onceMs)))
  if (measure) return () => measure(prepared, repeats)
  return async () => value((await prepared.time(repeats)) / repeats)
}

function notes(entrants: readonly Entrant[]): Pick<BenchRow, 'firstRunMs' | 'errors' | 'versions'> {
  const each = <T>(of: (entrant: Entrant) => T) =>
    Object.fromEntries(entrants.map((entrant) => [entrant.library.name, of(entrant)]))
  return {
    firstRunMs: each(({ firstRunMs }) => Math.round(firstRunMs)),
    errors: each(({ error }) => rounded(error)),
    versions: each(({ library }) =>
      library.adapter === entrants[0]?.library.adapter ? library.version : `${library.version} (${library.adapter})`,
    ),
  }
}

function relativeError(ours: Float32Array, wanted: Float32Array): number {
  if (ours.length !== wanted.length) return Infinity
  let [difference, norm] = [0, 0]
  for (let i = 0; i < wanted.length; i++) {
    const value = wanted[i] ?? NaN
    difference += ((ours[i] ?? NaN) - value) ** 2
    norm += value ** 2
  }
  return Math.sqrt(difference / norm)
}

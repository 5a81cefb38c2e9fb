// Libraries side by side on one task: first whether each computes the right thing, then how fast, in turns.
import { GridError } from '@starling-grid/protocol'
import { reference } from './libraries/reference.ts'
import type { Library, PreparedTask } from './library.ts'
import type { BenchPlace } from './places/place.ts'
import { type BenchRow, type Contender, race, type Reach, rounded } from './row.ts'
import { isMeasured, type SuiteOptions } from './suite.ts'
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
  /** who says what is right; absent: plain TypeScript, which takes minutes for billions of products */
  readonly expectedFrom?: 'pytorch'
  readonly reach?: Reach
  /** as TOLERANCE, where results are small differences of large numbers */
  readonly tolerance?: number
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
  { rounds, log, against }: SuiteOptions,
): Promise<BenchRow> {
  const expected = await expectedResult(comparison, place)
  const missing: Record<string, string> = Object.fromEntries(place.missing.map(({ name, reason }) => [name, reason]))
  const entrants: Entrant[] = []
  try {
    const taking = place.libraries.filter(({ name }) => isMeasured({ against }, name))
    for (const library of taking.filter(comparison.only ?? (() => true))) {
      const entrant = await enter(library, comparison, expected)
      const verdict =
        typeof entrant === 'string' ? `is out: ${entrant}` : `is right, first run ${Math.round(entrant.firstRunMs)} ms`
      log(`${comparison.name}: ${library.name} ${verdict}`)
      if (typeof entrant === 'string') missing[library.name] = entrant
      else entrants.push(entrant)
    }
    const [ours, ...peers] = entrants
    if (ours?.library.name !== OURS)
      throw new Error(`${comparison.name}: nothing to time, because Starling is out: ${missing[OURS]}`)
    const { name, unit, better, reach } = comparison
    const adapter = ours.library.adapter
    const row = { name, unit, adapter, ...(better ? { better } : {}), ...(reach ? { reach } : {}) }
    const contenders: Record<string, Contender> = {}
    for (const peer of peers) contenders[peer.library.name] = contender(peer, comparison)
    const raced = await race(row, contender(ours, comparison), contenders, rounds)
    return { ...raced, ...notes(entrants), missing }
  } finally {
    for (const { prepared } of entrants) await prepared.close()
  }
}

async function expectedResult({ task, expectedFrom }: BenchComparison, place: BenchPlace): Promise<Float32Array> {
  const library = expectedFrom === undefined ? reference() : place.libraries.find(({ name }) => name === expectedFrom)
  if (library === undefined) {
    const why = place.missing.map(({ reason }) => reason).join('; ')
    throw new GridError(
      'usage',
      `expected ${expectedFrom} to say what is right, got none (${why}); name a Python that has it in STARLING_PYTHON`,
    )
  }
  const prepared = await library.prepare(task)
  const result = await prepared.result()
  await prepared.close()
  return result
}

/** Prepared and found right, or the reason why not. */
async function enter(
  library: Library,
  { task, tolerance = TOLERANCE }: BenchComparison,
  expected: Float32Array,
): Promise<Entrant | string> {
  try {
    const start = performance.now()
    const prepared = await library.prepare(task)
    const result = await prepared.result()
    const firstRunMs = performance.now() - start
    const error = relativeError(result, expected)
    const wrong = error < tolerance ? undefined : `its result is wrong: off by ${error.toExponential(1)} of its norm`
    const onceMs = wrong === undefined ? await onceOf(prepared) : 0
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

/**
 * ms of one run, from as many as last a moment: one alone is mostly the way back of its result, and an idle GPU runs at
 * a fifth of its clock.
 */
async function onceOf(prepared: PreparedTask): Promise<number> {
  for (let repeats = 1; ; repeats *= 4) {
    const ms = await prepared.time(repeats)
    if (ms >= ROUND_MS / 4 || repeats >= MOST_REPEATS) return ms / repeats
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

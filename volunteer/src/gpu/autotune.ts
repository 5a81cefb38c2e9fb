// Which variants are fastest on this adapter, measured once when a plan is made and kept in the host's cache. What
// others with such an adapter named is measured first, and taken over when it passes a check.
// A plan's choices never change while it lives, so the order of its additions does not depend on timing.

import {
  type AdapterDescription,
  describeError,
  digest,
  type Precision,
  type Sha256,
  systemClock,
} from '@starling-grid/protocol'
import {
  candidatesFor,
  filesOf,
  KERNEL_URLS,
  variantName,
  type AdapterTraits,
  type Candidate,
  type KernelCall,
} from '@starling-grid/shaders'
import type { Graph } from '../graph/build.ts'
import { defaultVariant, shapeKey, type VariantSelector } from '../graph/choice.ts'
import { flopsOf } from '../graph/flops.ts'
import { fuseGraph } from '../graph/fuse.ts'
import type { SharedVariants } from '../graph/shared-variants.ts'
import type { Tensor } from '../graph/tensor.ts'
import type { ShardCache } from '../host.ts'
import {
  CHECKED,
  leastOf,
  measuringOrder,
  type MeasuringOrder,
  type MeasuringOutcome,
  outcomeOf,
  passesCheck,
  type VariantTiming,
  type VariantVote,
} from './measuring-order.ts'
import type { ReadText } from './pipelines.ts'
import { platformOf } from './platform.ts'
import type { AdapterFacts } from './runner.ts'
import { askForVotes, NO_VOTES, reportOf, type SharedVotes } from './shared-votes.ts'
import { type PrepareTrial, Stopwatch } from './stopwatch.ts'
import { parseTable, type MeasuredVariant, type TuningTable } from './tuning-table.ts'
import { tuningText, type TuningTally } from './tuning-text.ts'

export interface TuningOptions {
  /** milliseconds that measuring may take in all, compilation included; a compilation under way is waited for */
  readonly budgetMs: number
  readonly cache?: ShardCache
  /** what runs shaders on the adapter, as platform.ts reads it */
  readonly userAgent?: string
  /** gets a line for people, such as a cache entry that cannot be used */
  readonly say?: (text: string) => void
}

interface SharedTuning {
  readonly shared?: SharedVariants | undefined
}

export interface TuneRequest {
  readonly graph: Graph
  readonly capacity: number
  readonly traits: AdapterTraits
  readonly adapter: AdapterDescription
  /** what the adapter said of itself; absent: its description is all that is known */
  readonly facts?: AdapterFacts | undefined
  readonly precision?: Precision
  readonly readText: ReadText
  readonly prepare: PrepareTrial
}

/** ms: a GPU that was idle runs at a fifth of its clock, and the first variants would look slow */
const WARMING_MS = 100

/** `shared`: what others with this class of adapter measured; absent: this volunteer measures for itself alone. */
export async function tune(options: TuningOptions & SharedTuning, request: TuneRequest): Promise<VariantSelector> {
  const { budgetMs, cache, shared, say = () => undefined } = options
  const calls = tunableCalls(request)
  const name = await cacheName(calls, options, request)
  const adapterClass = classOf(name, calls)
  const table = cache ? await cached(cache, name, say) : new Map<string, MeasuredVariant>()
  const missing = [...calls].filter(([shape]) => !table.has(shape))
  const votes = shared && missing.length > 0 ? await askForVotes(shared, adapterClass, say) : NO_VOTES
  const tally = await measureAll(missing, { table, votes, budgetMs, request })
  const text = tuningText(tally)
  if (text !== undefined) say(text)
  if (cache && tally.shapes > 0)
    await cache
      .put(name, new TextEncoder().encode(JSON.stringify(Object.fromEntries(table))))
      .catch((cause: unknown) => say(`Measured kernels could not be kept: ${String(cause)}.`))
  const report = shared && reportOf(table, calls.keys())
  // Nothing waits for it.
  if (report)
    void shared(adapterClass, report).catch((error: unknown) =>
      say(`Measured kernels could not be told to others: ${describeError(error)}`),
    )
  return chooseFrom(table, request.traits, request.capacity)
}

interface Measuring {
  readonly table: Map<string, MeasuredVariant>
  readonly votes: SharedVotes
  readonly budgetMs: number
  readonly request: TuneRequest
}

/** Adds to the table what there is time for. */
async function measureAll(
  missing: readonly (readonly [shape: string, call: KernelCall<Tensor>])[],
  { table, votes, budgetMs, request }: Measuring,
): Promise<TuningTally> {
  const start = systemClock.now()
  const deadline = start + budgetMs
  const outcomes: MeasuringOutcome[] = []
  for (const [shape, call] of missing) {
    if (systemClock.now() >= deadline) break
    const warmingMs = outcomes.length === 0 ? WARMING_MS : 0
    const outcome = await fastest(call, request, { deadline, warmingMs, vote: votes.ofShape.get(shape) })
    table.set(shape, outcome.measured)
    outcomes.push(outcome)
  }
  const count = (wanted: MeasuringOutcome['others']): number =>
    outcomes.filter(({ others }) => others === wanted).length
  return {
    shapes: outcomes.length,
    variants: outcomes.reduce((sum, { variants }) => sum + variants, 0),
    ms: systemClock.now() - start,
    volunteers: votes.volunteers,
    takenOver: count('taken over'),
    fewestVotes: Math.min(...outcomes.flatMap(({ others, votes }) => (others === 'taken over' ? [votes] : []))),
    dropped: count('dropped'),
    unconfirmed: count('unconfirmed'),
    left: missing.length - outcomes.length,
  }
}

/** Distinct calls with more than one variant worth a try, those first that take longest. */
function tunableCalls({ graph, capacity, traits }: TuneRequest): Map<string, KernelCall<Tensor>> {
  const { forward, backward } = fuseGraph(graph)
  const calls = [...forward, ...backward].filter((call) => worthTrying(call, capacity, traits).length > 1)
  return new Map(calls.sort((a, b) => flopsOf(b, 1) - flopsOf(a, 1)).map((call) => [shapeKey(call, capacity), call]))
}

function worthTrying(call: KernelCall<Tensor>, capacity: number, traits: AdapterTraits): readonly Candidate[] {
  return candidatesFor(call, capacity, traits).filter(({ suits }) => suits)
}

interface MeasuringBounds {
  readonly deadline: number
  readonly warmingMs: number
  readonly vote: VariantVote | undefined
}

async function fastest(
  call: KernelCall<Tensor>,
  request: TuneRequest,
  { deadline, warmingMs, vote }: MeasuringBounds,
): Promise<MeasuringOutcome> {
  const candidates = worthTrying(call, request.capacity, request.traits)
  const plan = measuringOrder(candidates, variantName, vote)
  const stopwatch = new Stopwatch(call, request, warmingMs)
  const timings: VariantTiming[] = []
  for (const [index, candidate] of plan.order.entries()) {
    if (index >= leastOf(plan) && systemClock.now() >= deadline) break
    if (index === CHECKED && plan.isConfirmed && (await withstands(plan, timings, stopwatch))) break
    timings.push(await stopwatch.time(candidate))
  }
  return outcomeOf(plan, vote, timings)
}

/** A busy machine has bad moments: what fails the check is timed once more, which counts if it is better. */
async function withstands(
  { order: [named] }: MeasuringOrder<Candidate>,
  timings: VariantTiming[],
  stopwatch: Stopwatch,
): Promise<boolean> {
  const [before] = timings
  if (passesCheck(timings) || named === undefined || before === undefined) return passesCheck(timings)
  const again = await stopwatch.time(named)
  if (again.ms < before.ms) timings[0] = again
  return passesCheck(timings)
}

function chooseFrom(table: TuningTable, traits: AdapterTraits, capacity: number): VariantSelector {
  const otherwise = defaultVariant(traits)
  return (call, samples) => {
    const measured = samples === capacity ? table.get(shapeKey(call, samples)) : undefined
    const candidate =
      measured && candidatesFor(call, samples, traits).find((other) => variantName(other) === measured.variant)
    if (!measured || !candidate) return otherwise(call, samples)
    return { candidate, why: whyOf(measured) }
  }
}

function whyOf({ ms, nextMs, takenFrom }: MeasuredVariant): string {
  const next = nextMs === undefined ? 'nothing else was tried' : `the next ${nextMs.toFixed(3)} ms`
  const from = takenFrom === undefined ? '' : `taken over from ${takenFrom} volunteers with this class of adapter, `
  return `${from}measured ${ms.toFixed(3)} ms, ${next}`
}

/** Adapter, what runs shaders on it, precision, and kernel texts: with others of them all is measured anew. */
async function cacheName(
  calls: ReadonlyMap<string, KernelCall<Tensor>>,
  { userAgent = '' }: TuningOptions,
  { capacity, traits, adapter, facts = {}, precision = 'f32', readText }: TuneRequest,
): Promise<Sha256> {
  const passes = [...calls.values()].flatMap((call) =>
    worthTrying(call, capacity, traits).flatMap(({ recipe }) => recipe(capacity).passes),
  )
  const files = [...new Set(passes.flatMap(filesOf))].sort()
  const texts = await Promise.all(files.map((file) => readText(KERNEL_URLS[file])))
  const { architecture = '', device = '', description = '' } = facts
  const what = [adapter.name, adapter.vendor, architecture, device, description, platformOf(userAgent), precision]
  const kind = [traits.software, [...traits.features].sort()]
  return digest(new TextEncoder().encode(JSON.stringify(['variants', ...what, ...kind, texts])))
}

/**
 * What volunteers with such an adapter and such a plan have in common. Only this hash leaves the machine. With the
 * shapes in it, what is reported of a class is what its volunteers ask for.
 */
function classOf(name: Sha256, calls: ReadonlyMap<string, unknown>): Sha256 {
  return digest(new TextEncoder().encode(JSON.stringify([name, [...calls.keys()].sort()])))
}

async function cached(
  cache: ShardCache,
  name: Sha256,
  say: (text: string) => void,
): Promise<Map<string, MeasuredVariant>> {
  const bytes = await cache.get(name)
  if (!bytes) return new Map()
  const table = parseTable(bytes)
  if (!table) say('The measurements of kernels in the cache are damaged and are made anew.')
  return table ?? new Map()
}

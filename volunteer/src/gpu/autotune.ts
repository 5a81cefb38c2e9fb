// Which variants are fastest on this adapter, measured once when a plan is made and kept in the host's cache.
// A plan's choices never change while it lives, so the order of its additions does not depend on timing.

import { digest, systemClock, type AdapterDescription } from '@starling-grid/protocol'
import {
  candidatesFor,
  filesOf,
  KERNEL_URLS,
  type AdapterTraits,
  type Candidate,
  type KernelCall,
} from '@starling-grid/shaders'
import type { Graph } from '../graph/build.ts'
import { defaultVariant, shapeKey, type VariantSelector } from '../graph/choice.ts'
import { flopsOf } from '../graph/flops.ts'
import { fuseGraph } from '../graph/fuse.ts'
import type { Tensor } from '../graph/tensor.ts'
import type { ShardCache } from '../host.ts'
import type { ReadText } from './pipelines.ts'
import { parseTable, type MeasuredVariant, type TuningTable } from './tuning-table.ts'

export interface TuningOptions {
  /** milliseconds that measuring may take in all, compilation included; a compilation under way is waited for */
  readonly budgetMs: number
  readonly cache?: ShardCache
  /** gets a line for people, such as a cache entry that cannot be used */
  readonly say?: (text: string) => void
}

/** Calls made ready to run on the device. */
export interface Trial {
  /** runs them once; milliseconds */
  run(): Promise<number>
  destroy(): void
}

export type PrepareTrial = (calls: readonly KernelCall<Tensor>[], choose: VariantSelector) => Promise<Trial>

export interface TuneRequest {
  readonly graph: Graph
  readonly capacity: number
  readonly traits: AdapterTraits
  readonly adapter: AdapterDescription
  readonly readText: ReadText
  readonly prepare: PrepareTrial
}

/** A timing shorter than this says more about the queue than about the kernel. */
const SHORTEST_TIMING_MS = 4
/** Rough: what the first repeats are chosen by. */
const FLOPS_PER_MS = { software: 4e6, gpu: 1e9 }
const MOST_REPEATS = 64
/** ms: a GPU that was idle runs at a fifth of its clock, and the first variants would look slow */
const WARMING_MS = 100
/** Best of so many; a variant that is this much slower than the best in the first is dropped. */
const ROUNDS = 3
const HOPELESS = 1.5

export async function tune(
  { budgetMs, cache, say = () => undefined }: TuningOptions,
  request: TuneRequest,
): Promise<VariantSelector> {
  const { traits, capacity } = request
  const calls = tunableCalls(request)
  const name = await cacheName(calls, request)
  const table = cache ? await cached(cache, name, say) : new Map<string, MeasuredVariant>()
  const deadline = systemClock.now() + budgetMs
  const before = table.size
  for (const [key, call] of calls) {
    if (systemClock.now() >= deadline) break
    if (table.has(key)) continue
    const isFirst = table.size === before
    table.set(key, await fastest(call, request, { deadline, warmingMs: isFirst ? WARMING_MS : 0 }))
  }
  if (cache && table.size > before)
    await cache
      .put(name, new TextEncoder().encode(JSON.stringify(Object.fromEntries(table))))
      .catch((cause: unknown) => say(`Measured kernels could not be kept: ${String(cause)}.`))
  return chooseFrom(table, traits, capacity)
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

async function fastest(
  call: KernelCall<Tensor>,
  { capacity, traits, prepare }: TuneRequest,
  { deadline, warmingMs }: { readonly deadline: number; readonly warmingMs: number },
): Promise<MeasuredVariant> {
  const candidates = worthTrying(call, capacity, traits)
  const trialOf = (candidate: Candidate, repeats: number): Promise<Trial> =>
    prepare(
      Array.from({ length: repeats }, () => call),
      () => ({ candidate, why: 'being measured' }),
    )
  const perMs = traits.software ? FLOPS_PER_MS.software : FLOPS_PER_MS.gpu
  const guess = Math.min(MOST_REPEATS, Math.ceil((SHORTEST_TIMING_MS * perMs) / flopsOf(call, capacity)))
  const times: { variant: string; ms: number }[] = []
  let repeats = guess
  for (const [index, candidate] of candidates.entries()) {
    if (index > 0 && systemClock.now() >= deadline) break
    const best = Math.min(...times.map(({ ms }) => ms))
    let trial = await trialOf(candidate, repeats)
    if (index === 0 && !traits.software) repeats = await enoughRepeats(trial, guess, warmingMs)
    if (index === 0 && repeats > guess) {
      trial.destroy()
      trial = await trialOf(candidate, repeats)
    }
    times.push({ variant: variantOf(candidate), ms: (await bestOf(trial, best * repeats)) / repeats })
    trial.destroy()
  }
  const [first = { variant: '', ms: 0 }, second] = times.sort((a, b) => a.ms - b.ms)
  return { variant: first.variant, ms: first.ms, ...(second ? { nextMs: second.ms } : {}) }
}

/** So many that a timing says something about the kernel: a GPU does up to 40 times as much as the guess. */
async function enoughRepeats(trial: Trial, guess: number, warmingMs: number): Promise<number> {
  const until = systemClock.now() + warmingMs
  await trial.run()
  let ms = await trial.run()
  while (systemClock.now() < until) ms = await trial.run()
  return Math.min(MOST_REPEATS, guess * Math.max(1, Math.ceil(SHORTEST_TIMING_MS / ms)))
}

async function bestOf(trial: Trial, best: number): Promise<number> {
  await trial.run() // software adapters compile at the first use
  let ms = await trial.run()
  for (let round = 1; round < ROUNDS && ms < HOPELESS * best; round++) ms = Math.min(ms, await trial.run())
  return ms
}

function chooseFrom(table: TuningTable, traits: AdapterTraits, capacity: number): VariantSelector {
  const otherwise = defaultVariant(traits)
  return (call, samples) => {
    const measured = samples === capacity ? table.get(shapeKey(call, samples)) : undefined
    const candidate =
      measured && candidatesFor(call, samples, traits).find((other) => variantOf(other) === measured.variant)
    if (!measured || !candidate) return otherwise(call, samples)
    const next = measured.nextMs === undefined ? 'nothing else was tried' : `the next ${measured.nextMs.toFixed(3)} ms`
    return { candidate, why: `measured ${measured.ms.toFixed(3)} ms, ${next}` }
  }
}

function variantOf({ family, name }: Candidate): string {
  return `${family} ${name}`
}

/** Adapter and kernel texts: other drivers and other kernels are measured anew. */
async function cacheName(
  calls: ReadonlyMap<string, KernelCall<Tensor>>,
  { capacity, traits, adapter, readText }: TuneRequest,
) {
  const passes = [...calls.values()].flatMap((call) =>
    worthTrying(call, capacity, traits).flatMap(({ recipe }) => recipe(capacity).passes),
  )
  const files = [...new Set(passes.flatMap(filesOf))].sort()
  const texts = await Promise.all(files.map((file) => readText(KERNEL_URLS[file])))
  const bytes = new TextEncoder().encode(
    JSON.stringify(['tuning', adapter.name, adapter.vendor, [...traits.features].sort(), texts]),
  )
  return digest(bytes)
}

async function cached(
  cache: ShardCache,
  name: Parameters<ShardCache['get']>[0],
  say: (text: string) => void,
): Promise<Map<string, MeasuredVariant>> {
  const bytes = await cache.get(name)
  if (!bytes) return new Map()
  const table = parseTable(bytes)
  if (!table) say('The measurements of kernels in the cache are damaged and are made anew.')
  return table ?? new Map()
}

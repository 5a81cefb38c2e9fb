// What a planner tries for a graph, from what computes fastest to what takes the least memory. Pure.

import type { Precision } from '@starling-grid/protocol'
import type { AdapterLimits } from './adapter-limits.ts'
import type { Graph } from './build.ts'
import { heldWords, packFrozen, type Packing } from './packed.ts'
import { recomputeGraph } from './recompute.ts'
import { separateEvaluation, tensorsOf } from './storages.ts'
import { cutVocabulary } from './vocabulary.ts'

export interface Attempt {
  readonly graph: Graph
  readonly recomputed: boolean
  readonly capacity: number
}

export interface AttemptOptions {
  readonly maxMicroBatch: number
  readonly limits: AdapterLimits
  readonly precision: Precision
  /** of the device's memory */
  readonly maxBytes: number
  readonly recompute: boolean
  readonly packing: Packing | undefined
}

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT
/** Bytes of a piece of a table as f32, where the whole would take a large part of what packing saves. */
const PIECE_BYTES = 16 * 1024 * 1024

/** What is saved, and what it costs. */
interface Saving {
  /** matrices stay packed: each is unpacked where it is read, some hundredths of a step */
  readonly packs: boolean
  /** … and large tables are read in pieces: the last product is computed twice */
  readonly cuts: boolean
  /** values are computed again in backward: a third of a step, or half where few parameters learn */
  readonly recomputes: boolean
}

const SAVINGS: readonly Saving[] = [
  { packs: false, cuts: false, recomputes: false },
  { packs: true, cuts: false, recomputes: false },
  { packs: true, cuts: true, recomputes: false },
  { packs: false, cuts: false, recomputes: true },
  { packs: true, cuts: true, recomputes: true },
]

export function* attemptsFor(graph: Graph, options: AttemptOptions): Generator<Attempt> {
  const one = attempt(graph, { packs: false, cuts: false, recomputes: false }, { ...options, capacity: 1 })
  const isComputable = recomputeGraph(one.graph).backward.length !== one.graph.backward.length
  const savings = savingsFor(graph, options, isComputable)
  const most = mostSamples(one.graph, options)
  // What is above holds no value at all: looking at it takes long where the vocabulary then has many pieces.
  const capacities = halvings(options.maxMicroBatch).filter((capacity) => capacity <= most || capacity === 1)
  const pairs =
    isComputable && graph.mixesSamples
      ? capacities.flatMap((capacity) => savings.map((saving) => [saving, capacity] as const))
      : savings.flatMap((saving) => capacities.map((capacity) => [saving, capacity] as const))
  for (const [saving, capacity] of pairs) yield attempt(graph, saving, { ...options, capacity })
}

function savingsFor(
  graph: Graph,
  { maxBytes, recompute, packing }: AttemptOptions,
  isComputable: boolean,
): readonly Saving[] {
  const canPack = packing !== undefined && packFrozen(graph, packing.storage) !== graph
  const mustPack = canPack && (packing.always === true || packing.pieces === true || heldBytes(graph) > maxBytes)
  return SAVINGS.filter(
    ({ packs, cuts, recomputes }) =>
      (packs ? canPack && (cuts || packing.pieces !== true) : !mustPack) &&
      (recomputes ? isComputable : !(recompute && isComputable)),
  )
}

function attempt(
  graph: Graph,
  { packs, cuts, recomputes }: Saving,
  { limits, packing, capacity }: Pick<AttemptOptions, 'limits' | 'packing'> & { readonly capacity: number },
): Attempt {
  const { maxStorageBufferBindingSize: most } = limits
  const bounds = { maxBindingBytes: cuts ? Math.min(most, PIECE_BYTES) : most, capacity }
  const cut = separateEvaluation(cutVocabulary(graph, bounds))
  const kept = recomputes ? recomputeGraph(cut) : cut
  return { graph: packs && packing ? packFrozen(kept, packing.storage) : kept, recomputed: recomputes, capacity }
}

/** Of the parameters, their gradient and what is fixed, as f32 unless it lies packed. */
export function heldBytes({
  parameterCount,
  fixed,
  packed,
}: Pick<Graph, 'parameterCount' | 'fixed' | 'packed'>): number {
  return FLOAT_BYTES * fixed.reduce((sum, entry) => sum + heldWords(entry, packed), 2 * parameterCount)
}

/** Of more than so many samples some value does not fit one binding. */
function mostSamples({ forward }: Graph, { limits, precision }: AttemptOptions): number {
  const elementBytes = precision === 'f16' ? FLOAT_BYTES / 2 : FLOAT_BYTES
  const sizes = forward.flatMap(tensorsOf).map(({ size, shared }) => (shared ? 1 : size))
  return Math.floor(limits.maxStorageBufferBindingSize / (elementBytes * Math.max(1, ...sizes)))
}

/** 64, 32, … 1 */
function halvings(max: number): readonly number[] {
  return max > 1 ? [max, ...halvings(Math.ceil(max / 2))] : [max]
}

/** For people: what a plan does to fit, unless it was asked for. */
export function savingsText(
  { recomputed, graph: { packed } }: { readonly recomputed: boolean; readonly graph: Pick<Graph, 'packed'> },
  { recompute = false, packing }: Partial<Pick<AttemptOptions, 'recompute' | 'packing'>>,
): string | undefined {
  const what = [
    ...(packed !== undefined && packing?.always !== true && packing?.pieces !== true
      ? [`the base model stays in ${packed} there and is unpacked matrix by matrix`]
      : []),
    ...(recomputed && !recompute ? ['some values are computed again'] : []),
  ]
  return what.length === 0
    ? undefined
    : `This model needs more memory than may be used: ${what.join(', and ')}, with the same result.`
}

// Recomputation: forward is cut where a single value crosses, about √n times, and only what crosses is kept. Backward
// runs the calls of a segment again just before it needs their results: less memory, more time, equal bits. Source:
// Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016). Pure: call lists in, call lists out.

import type { Graph } from './build.ts'
import { firstFreeStorage, renameStorages, storagesOf, tensorsOf, type Call } from './storages.ts'
import type { Tensor } from './tensor.ts'

/** The same graph with backward computing again what forward then need not keep. */
export function recomputeGraph(graph: Graph): Graph {
  const segments = cutForward(graph)
  const outside = new Set([...graph.loss.flatMap(storagesOf), graph.output.storage])
  const fresh = { next: firstFreeStorage(graph) }
  let { backward } = graph
  // The last segment's values are needed at once.
  for (const [index, segment] of segments.slice(0, -1).entries()) {
    const later = new Set(
      segments
        .slice(index + 1)
        .flat()
        .flatMap(storagesOf),
    )
    const made = madeBy(segment, new Set(segments.slice(0, index).flat().flatMap(storagesOf)))
    const inner = new Set([...made].filter((storage) => !later.has(storage) && !outside.has(storage)))
    backward = withRecomputed(backward, { segment, made, inner, fresh })
  }
  return { ...graph, backward }
}

interface RecomputedSegment {
  readonly segment: readonly Call[]
  /** storages that the segment writes */
  readonly made: ReadonlySet<number>
  /** those of them that only backward reads after the segment */
  readonly inner: ReadonlySet<number>
  readonly fresh: { next: number }
}

function withRecomputed(
  backward: readonly Call[],
  { segment, made, inner, fresh }: RecomputedSegment,
): readonly Call[] {
  const wanted = new Set(backward.flatMap(storagesOf).filter((storage) => inner.has(storage)))
  const again = segment
    .toReversed()
    .filter((call) => {
      if (!resultsOf(call).some((storage) => wanted.has(storage))) return false
      for (const storage of storagesOf(call)) if (inner.has(storage)) wanted.add(storage)
      return true
    })
    .toReversed()
  if (again.length === 0) return backward
  const rewritten = new Set(again.flatMap(resultsOf).filter((storage) => made.has(storage)))
  const copies = new Map([...rewritten].map((storage) => [storage, fresh.next++]))
  const renamed = backward.map((call) =>
    renameStorages(call, new Map([...copies].filter(([storage]) => inner.has(storage)))),
  )
  const at = backward.findIndex((call) => storagesOf(call).some((storage) => inner.has(storage)))
  return [...renamed.slice(0, at), ...again.map((call) => renameStorages(call, copies)), ...renamed.slice(at)]
}

const RESULTS: ReadonlySet<string> = new Set(['y', 'preactivation', 'mean', 'inverse', 'probabilities', 'logSums'])

/** What a call of forward writes: all of a value, or, as a concatenation and rotary positions do, a part of it. */
export function resultsOf({ kernel, operands }: Call): number[] {
  return Object.entries(operands as Readonly<Record<string, Tensor | undefined>>).flatMap(([name, tensor]) =>
    tensor && (RESULTS.has(name) || (kernel === 'rotary.forward' && name === 'qkv')) ? [tensor.storage] : [],
  )
}

function madeBy(segment: readonly Call[], before: ReadonlySet<number>): ReadonlySet<number> {
  return new Set(
    segment
      .flatMap(tensorsOf)
      .filter(({ role, storage }) => role === 'activation' && !before.has(storage))
      .map(({ storage }) => storage),
  )
}

/** About √n segments, cut at the places nearest to even ones where one activation crosses. */
function cutForward({ forward }: Graph): readonly (readonly Call[])[] {
  const places = crossings(forward).flatMap((count, at) => (at > 0 && count === 1 ? [at] : []))
  const wanted = Math.max(2, Math.round(Math.sqrt(forward.length)))
  const even = Array.from({ length: wanted - 1 }, (_, i) => ((i + 1) * forward.length) / wanted)
  const nearest = even.flatMap((to) => places.toSorted((a, b) => Math.abs(a - to) - Math.abs(b - to)).slice(0, 1))
  const cuts = [0, ...[...new Set(nearest)].sort((a, b) => a - b), forward.length]
  return cuts.slice(1).map((end, i) => forward.slice(cuts[i], end))
}

/** Before each call: activations made before it and named from there on. */
function crossings(forward: readonly Call[]): number[] {
  const [first, last] = [new Map<number, number>(), new Map<number, number>()]
  for (const [at, call] of forward.entries())
    for (const { role, storage } of tensorsOf(call)) {
      if (role === 'activation' && !first.has(storage)) first.set(storage, at)
      last.set(storage, at)
    }
  const changes = new Array<number>(forward.length + 1).fill(0)
  for (const [storage, made] of first) {
    const end = last.get(storage) ?? made
    changes[made + 1] = (changes[made + 1] ?? 0) + 1
    changes[end + 1] = (changes[end + 1] ?? 0) - 1
  }
  let open = 0
  return changes.slice(0, forward.length).map((change) => {
    open += change
    return open
  })
}

// Which parameters of a model travel together in a local round of several fragments, and after which inner step each
// fragment leaves. Pure, and a function of the layout and the job alone: members must cut alike (gradient-buckets.ts).
// Source: Streaming DiLoCo (Douillard et al., 2025, arXiv 2501.18512).
import type { FloatRange } from '../floats.ts'

/** What the cut depends on, of a model's layout. */
export interface FragmentLayout {
  readonly entries: readonly { readonly name: string; readonly offset: number; readonly length: number }[]
  readonly total: number
}

/**
 * Whole layers, each into the fragment that has the fewest floats yet: layers of one size stride, as in the paper. A
 * layer that is larger than a fragment should be is cut first. What counts is the largest fragment: it is the peak of
 * bytes.
 */
export function fragmentsOf({ entries, total }: FragmentLayout, count: number): FloatRange[][] {
  const most = Math.ceil(total / count)
  const fragments = Array.from({ length: count }, (): { ranges: FloatRange[]; floats: number } => ({
    ranges: [],
    floats: 0,
  }))
  for (const range of layersOf(entries).flatMap((layer) => cut(layer, most))) {
    const least = fragments.reduce((a, b) => (b.floats < a.floats ? b : a))
    least.ranges.push(range)
    least.floats += range.end - range.start
  }
  return fragments.map(({ ranges }) => joined(ranges))
}

/** Neighbours whose names differ in their last part only: `fc1.weight`, `fc1.bias`. */
function layersOf(entries: FragmentLayout['entries']): FloatRange[] {
  const layers: { layer: string; start: number; end: number }[] = []
  for (const { name, offset, length } of entries) {
    const layer = name.slice(0, Math.max(0, name.lastIndexOf('.')))
    const last = layers.at(-1)
    if (last?.layer === layer) last.end = offset + length
    else layers.push({ layer, start: offset, end: offset + length })
  }
  return layers
}

function cut({ start, end }: FloatRange, most: number): FloatRange[] {
  const pieces = Math.ceil((end - start) / most)
  return Array.from({ length: pieces }, (_, i) => ({
    start: start + Math.floor(((end - start) * i) / pieces),
    end: start + Math.floor(((end - start) * (i + 1)) / pieces),
  }))
}

function joined(ranges: readonly FloatRange[]): FloatRange[] {
  const all: FloatRange[] = []
  for (const { start, end } of ranges) {
    const last = all.at(-1)
    if (last?.end === start) all[all.length - 1] = { start: last.start, end }
    else all.push({ start, end })
  }
  return all
}

/**
 * Inner steps of a round after which fragment `index` leaves: one fragment every `steps / count` of them. The last
 * leaves half of that before the end, so that its exchange has inner steps to hide behind, too.
 */
export function leavesAfter(
  index: number,
  { count, steps }: { readonly count: number; readonly steps: number },
): number {
  return Math.min(steps, Math.max(1, Math.round(((index + 0.5) * steps) / count)))
}

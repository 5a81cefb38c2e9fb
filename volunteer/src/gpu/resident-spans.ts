// The flat vectors as an optimizer's kernels see them: spans that one binding holds, each cut into chunks of a
// workgroup. A chunk is in one parameter, since those differ in what a step does with them. Pure.
import type { ParameterEntry } from '@starling-grid/model'
import { CHUNK, CHUNK_ELEMENTS, CHUNK_WORDS, type OptimizerSpec } from '@starling-grid/shaders'
import type { FlatView, FlatViews } from '../graph/flat-views.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

export interface ResidentSpan {
  /** of the flat vectors, and where the span begins in it */
  readonly segment: number
  readonly start: number
  /** of the span, gaps between parameters included */
  readonly elements: number
  readonly chunks: number
  /** CHUNK_WORDS words of each chunk */
  readonly table: Uint32Array<ArrayBuffer>
}

interface OpenSpan {
  readonly segment: number
  readonly start: number
  end: number
  readonly views: FlatView[]
}

export function residentSpans(
  flat: FlatViews,
  entries: readonly ParameterEntry[],
  { decay = 'all' }: OptimizerSpec,
  { maxStorageBufferBindingSize }: { readonly maxStorageBufferBindingSize: number },
): ResidentSpan[] {
  const most = maxStorageBufferBindingSize / FLOAT_BYTES - 4
  return spansOf(flat, most).map(({ segment, start, end, views }) => {
    const base = flat.segments[segment]?.start ?? 0
    const words = views.flatMap((view) => {
      const entry = entries.find(({ offset, length }) => offset <= view.offset && view.offset < offset + length)
      if (entry === undefined) throw new Error(`internal: ${view.name} is no parameter of the model`)
      return chunksOf(view.deviceOffset - base - start, view.length, whatIs(entry, decay))
    })
    return { segment, start, elements: end - start, chunks: words.length / CHUNK_WORDS, table: Uint32Array.from(words) }
  })
}

/** Views of one segment side by side, of at most so many elements unless a single view is longer. */
function spansOf({ views, segments }: FlatViews, most: number): OpenSpan[] {
  const spans: OpenSpan[] = []
  for (const view of views.values()) {
    const segment = segments.findIndex(({ start, end }) => start <= view.deviceOffset && view.deviceOffset < end)
    const start = view.deviceOffset - (segments[segment]?.start ?? 0)
    const open = spans.at(-1)
    if (open?.segment === segment && start + view.length - open.start <= most) {
      open.end = start + view.length
      open.views.push(view)
    } else spans.push({ segment, start, end: start + view.length, views: [view] })
  }
  return spans
}

/** What a step does with it, and the share of a statistic as bits. */
function whatIs({ kind, momentum = 0 }: ParameterEntry, decay: OptimizerSpec['decay']): readonly [number, number] {
  if (kind === 'statistic') return [CHUNK.statistic, new Uint32Array(Float32Array.of(momentum).buffer)[0] ?? 0]
  return [decay === 'matrices' && kind !== 'trained' ? CHUNK.undecayed : CHUNK.decayed, 0]
}

function chunksOf(first: number, length: number, what: readonly [number, number]): number[] {
  return Array.from({ length: Math.ceil(length / CHUNK_ELEMENTS) }, (_, i) => {
    const start = i * CHUNK_ELEMENTS
    return [(first + start) / 4, Math.min(CHUNK_ELEMENTS, length - start), ...what]
  }).flat()
}

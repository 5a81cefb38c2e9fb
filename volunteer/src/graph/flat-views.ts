// The flat vectors as a device holds them: each parameter at an offset at which a buffer can be bound. Shaders
// therefore do not depend on a layer's position in the vector. Gaps hold zeros or nothing that is read. A vector that
// no buffer holds lies in segments, a buffer each, and a parameter that no binding holds in chunks.

import type { ParameterEntry } from '@starling-grid/model'
import type { FloatRange } from '../floats.ts'

/** WebGPU binds storage buffers at multiples of 256 bytes on every adapter. */
const BIND_ALIGNMENT_ELEMENTS = 64
/** Matrix kernels may touch up to two groups of four past the end of a tensor, without effect on results. */
const SLACK_ELEMENTS = 8

export interface FlatView {
  readonly name: string
  /** in the layout without gaps that the rest of the program knows */
  readonly offset: number
  readonly length: number
  /** in the device's vector, in elements */
  readonly deviceOffset: number
}

export interface FlatViews {
  /** by layout offset, in its order; a parameter in chunks has several */
  readonly views: ReadonlyMap<number, FlatView>
  /** elements of the device's vector */
  readonly deviceLength: number
  /** of the device's vector, a buffer each; together all of it */
  readonly segments: readonly FloatRange[]
}

export interface FlatBounds {
  /** elements of a segment, unless a single view is longer; absent: one segment */
  readonly maxLength?: number
  /** layout offset of a parameter → elements of its chunks */
  readonly chunks?: ReadonlyMap<number, number>
}

export function flatViews(
  entries: readonly ParameterEntry[],
  { maxLength = Number.POSITIVE_INFINITY, chunks }: FlatBounds = {},
): FlatViews {
  let deviceLength = 0
  const views = new Map<number, FlatView>()
  const segments: { start: number; end: number }[] = []
  for (const { name, offset, length } of entries.flatMap((entry) => chunksOf(entry, chunks?.get(entry.offset)))) {
    views.set(offset, { name, offset, length, deviceOffset: deviceLength })
    const end = deviceLength + Math.ceil((length + SLACK_ELEMENTS) / BIND_ALIGNMENT_ELEMENTS) * BIND_ALIGNMENT_ELEMENTS
    const open = segments.at(-1)
    if (open && end - open.start <= maxLength) open.end = end
    else segments.push({ start: deviceLength, end })
    deviceLength = end
  }
  if (deviceLength > 0) return { views, deviceLength, segments }
  return { views, deviceLength: BIND_ALIGNMENT_ELEMENTS, segments: [{ start: 0, end: BIND_ALIGNMENT_ELEMENTS }] }
}

function chunksOf(
  { name, offset, length }: ParameterEntry,
  chunk = length,
): readonly Pick<FlatView, 'name' | 'offset' | 'length'>[] {
  return Array.from({ length: Math.ceil(length / chunk) }, (_, i) => ({
    name,
    offset: offset + i * chunk,
    length: Math.min(chunk, length - i * chunk),
  }))
}

/** Where an element of the layout lies in the device's vector: the beginning of a parameter, or of rows of it. */
export function deviceOffsetOf({ views }: FlatViews, offset: number): number | undefined {
  const view =
    views.get(offset) ??
    [...views.values()].find((other) => other.offset <= offset && offset < other.offset + other.length)
  return view && view.deviceOffset + offset - view.offset
}

/** A run of the device's vector inside one segment. */
export interface SegmentPiece {
  readonly segment: number
  /** elements before it, in the segment and in the run that was asked for */
  readonly start: number
  readonly from: number
  readonly length: number
}

/** A run of the device's vector, cut where its buffers begin and end. */
export function segmentPieces({ segments }: Pick<FlatViews, 'segments'>, { start, end }: FloatRange): SegmentPiece[] {
  return segments.flatMap((held, segment) => {
    const [first, last] = [Math.max(start, held.start), Math.min(end, held.end)]
    return first < last ? [{ segment, start: first - held.start, from: first - start, length: last - first }] : []
  })
}

/** Whole views side by side, each run of at most so many elements unless a single view is longer. */
export function viewRuns(flat: FlatViews, range: FloatRange, most: number): FloatRange[] {
  const runs: { start: number; end: number }[] = []
  for (const { offset, length } of viewsIn(flat, range)) {
    const open = runs.at(-1)
    if (open && offset + length - open.start <= most) open.end = offset + length
    else runs.push({ start: offset, end: offset + length })
  }
  return runs
}

/** Where whole parameters that lie side by side in the layout lie on the device. */
export function deviceRange(flat: FlatViews, range: FloatRange): FloatRange {
  const inside = viewsIn(flat, range)
  const [first, last] = [inside[0], inside.at(-1)]
  return first && last ? { start: first.deviceOffset, end: last.deviceOffset + last.length } : { start: 0, end: 0 }
}

/** Device order → layout order, of one range: `device` holds its `deviceRange`. */
export function gather(flat: FlatViews, range: FloatRange, device: Float32Array, into: Float32Array): void {
  const { start } = deviceRange(flat, range)
  for (const { offset, length, deviceOffset } of viewsIn(flat, range))
    into.set(device.subarray(deviceOffset - start, deviceOffset - start + length), offset)
}

/** A run that lies without a gap in both orders. */
export interface FlatPiece {
  readonly start: number
  readonly deviceStart: number
  readonly length: number
}

/** Any run of the layout, cut where parameters begin and end. */
export function devicePieces({ views }: FlatViews, { start, end }: FloatRange): FlatPiece[] {
  return [...views.values()].flatMap(({ offset, length, deviceOffset }) => {
    const [first, last] = [Math.max(start, offset), Math.min(end, offset + length)]
    return first < last ? [{ start: first, deviceStart: deviceOffset + first - offset, length: last - first }] : []
  })
}

function viewsIn({ views }: FlatViews, { start, end }: FloatRange): FlatView[] {
  return [...views.values()].filter(({ offset, length }) => offset >= start && offset + length <= end)
}

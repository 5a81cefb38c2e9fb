// The flat vectors as a device holds them: each parameter at an offset at which a buffer can be bound. Shaders
// therefore do not depend on a layer's position in the vector. Gaps hold zeros or nothing that is read.

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
  /** by layout offset */
  readonly views: ReadonlyMap<number, FlatView>
  /** elements of the device's vector */
  readonly deviceLength: number
}

export function flatViews(entries: readonly ParameterEntry[]): FlatViews {
  let deviceLength = 0
  const views = new Map<number, FlatView>()
  for (const { name, offset, length } of entries) {
    views.set(offset, { name, offset, length, deviceOffset: deviceLength })
    deviceLength += Math.ceil((length + SLACK_ELEMENTS) / BIND_ALIGNMENT_ELEMENTS) * BIND_ALIGNMENT_ELEMENTS
  }
  return { views, deviceLength: Math.max(deviceLength, BIND_ALIGNMENT_ELEMENTS) }
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

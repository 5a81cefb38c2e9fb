// A run cut into what is submitted at once: passes, and what is copied out after them. One section, unless pieces of
// the gradient are wanted before the rest. Pure: it names buffers and touches none.

import { lastSize } from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import { finalAfter } from '../graph/early-ranges.ts'
import { devicePieces, deviceRange, type FlatPiece, viewRuns } from '../graph/flat-views.ts'
import type { Plan, PlannedPass, Resource } from '../graph/plan.ts'
import type { RunRequest } from '../graph/runner.ts'
import { lengthFor, type Tensor } from '../graph/tensor.ts'
import { logitsPieces } from '../graph/vocabulary.ts'
import type { EncodedRun, EncodingCut } from './encoding-cut.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT
/** Bytes of the gradient that one staging buffer brings: a large gradient does not lie on the device a third time. */
export const STAGING_BYTES = 64 * 1024 * 1024

export interface StagingCopy {
  readonly source: Resource
  /** in the staging buffer */
  readonly offset: number
}

export interface Section {
  readonly passes: readonly PlannedPass[]
  /** values that were asked for, then the gradient */
  readonly copies: readonly StagingCopy[]
  /**
   * of the staging buffer: it follows the capacity and not the samples, so that every run of a kind uses the same ring
   */
  readonly bytes: number
  /** of the layout: what the last copy brings */
  readonly gradient: FloatRange | undefined
  /** the early range that is final with this section */
  readonly final: number | undefined
  /** the classes that the output's piece begins with, where the only copy is one */
  readonly piece?: LogitsPiece
  /** instead of `gradient`, where runs of it are encoded */
  readonly encoded?: EncodedSection
}

/** The logits of some classes, of all rows. */
export interface LogitsPiece {
  readonly first: number
  readonly count: number
}

/** A piece of the gradient that comes in part as floats and in part as bytes. */
export interface EncodedSection {
  /** floats for the encoder, one after the other */
  readonly inputs: readonly FlatPiece[]
  /** floats that come as they are: one copy each, the last ones */
  readonly floats: readonly FlatPiece[]
  /** encoded bytes, in the staging buffer from `offset` on */
  readonly runs: readonly EncodedRun[]
  readonly offset: number
  readonly bytes: number
}

/** Of a request for a run, what its sections depend on. */
export interface SectionRequest extends Pick<RunRequest, 'samples' | 'parts' | 'read' | 'glance' | 'early'> {
  readonly gradientInto?: { readonly length: number }
}

/** `cuts`: how runs of the early ranges are encoded, where they are. */
export function sectionsOf(
  plan: Plan,
  { samples, parts, read = [], glance = false, gradientInto, early }: SectionRequest,
  cuts: readonly (EncodingCut | undefined)[] = [],
): Section[] {
  const passes = parts.flatMap((part) => plan.parts[part])
  const { logits, output } = plan.graph
  const inPieces = logits !== undefined && read.some(({ storage }) => storage === output.storage)
  const whole = inPieces ? read.filter(({ storage }) => storage !== output.storage) : read
  const ranges = gradientInto && (early?.ranges ?? [{ start: 0, end: gradientInto.length }])
  if (!ranges) {
    const values = whole.map((tensor) => wanted(plan, tensor, samples))
    const first = { passes, ...staging(glance ? values.map(firstOf) : values) }
    return [{ ...first, gradient: undefined, final: undefined }, ...(inPieces ? logitsSections(plan, samples) : [])]
  }
  const inDevice = ranges.map((range) => deviceRange(plan.flat, range))
  const ends = finalAfter(inDevice, passes.map(writtenRanges))
  return ranges.flatMap((gradient, i): Section[] => {
    const isLast = i === ranges.length - 1
    const values = isLast ? whole.map((tensor) => wanted(plan, tensor, samples)) : []
    const ran = passes.slice(ends[i - 1] ?? 0, isLast ? undefined : ends[i])
    const cut = cuts[i]
    if (!cut) return gradientSections(plan, { gradient, values, passes: ran, final: i })
    return [
      {
        passes: ran,
        gradient: undefined,
        final: i,
        ...encodedStaging(plan, values, { range: gradient, runs: early?.encode?.runs[i] ?? [], cut }),
      },
    ]
  })
}

/** A range of the gradient, through staging buffers of a bounded size: the last one has the other values, too. */
function gradientSections(
  plan: Plan,
  {
    gradient,
    values,
    passes,
    final,
  }: {
    readonly gradient: FloatRange
    readonly values: readonly WantedBytes[]
    readonly passes: readonly PlannedPass[]
    readonly final: number
  },
): Section[] {
  const found = viewRuns(plan.flat, gradient, STAGING_BYTES / FLOAT_BYTES)
  const runs = found.length > 1 ? found : [gradient]
  return runs.map((run, i) => {
    const isLast = i === runs.length - 1
    return {
      passes: i === 0 ? passes : [],
      ...staging([...(isLast ? values : []), gradientCopy(deviceRange(plan.flat, run))]),
      gradient: run,
      final: isLast ? final : undefined,
    }
  })
}

/** One for each piece of the classes: all pieces are made in the same place. */
function logitsSections(plan: Plan, samples: number): Section[] {
  const { output } = plan.graph
  const rows = output.size / lastSize(output.shape)
  let first = 0
  return logitsPieces(plan.graph).map(({ y, calls }) => {
    const piece = { first, count: y.size / rows }
    first += piece.count
    const passes = plan.parts.logits.filter(({ origin }) => calls.has(origin.call))
    return { passes, ...staging([wanted(plan, y, samples)]), gradient: undefined, final: undefined, piece }
  })
}

function encodedStaging(
  { flat }: Plan,
  values: readonly WantedBytes[],
  { range, runs, cut }: { readonly range: FloatRange; readonly runs: readonly FloatRange[]; readonly cut: EncodingCut },
) {
  const floats = between(range, runs).flatMap((rest) => devicePieces(flat, rest))
  const { copies, bytes } = staging([
    ...values,
    ...floats.map(({ deviceStart, length }) => gradientCopy({ start: deviceStart, end: deviceStart + length })),
  ])
  const encoded = {
    inputs: runs.flatMap((run) => devicePieces(flat, run)),
    floats,
    runs: cut.runs,
    offset: bytes,
    bytes: cut.words * FLOAT_BYTES,
  }
  return { copies, bytes: bytes + encoded.bytes, encoded }
}

/** What is left of a range beside runs of it. */
function between({ start, end }: FloatRange, runs: readonly FloatRange[]): FloatRange[] {
  const inOrder = [...runs].sort((a, b) => a.start - b.start)
  const edges = [start, ...inOrder.flatMap((run) => [run.start, run.end]), end]
  return edges.flatMap((edge, i) =>
    i % 2 === 0 && edge < (edges[i + 1] ?? edge) ? [{ start: edge, end: edges[i + 1] ?? edge }] : [],
  )
}

interface WantedBytes {
  readonly source: Resource
  /** in the staging buffer, of which `source` may fill less */
  readonly reserved: number
}

function wanted({ placement, capacity }: Plan, tensor: Tensor, samples: number): WantedBytes {
  const place = placement.get(tensor.storage)
  if (!place) throw new Error(`internal: ${tensor.name} has no buffer`)
  const bytesFor = (count: number) => lengthFor(tensor, count) * FLOAT_BYTES
  return { source: { kind: 'pooled', ...place, bytes: bytesFor(samples) }, reserved: bytesFor(capacity) }
}

function firstOf({ source }: WantedBytes): WantedBytes {
  return { source: { ...source, bytes: FLOAT_BYTES }, reserved: FLOAT_BYTES }
}

function gradientCopy({ start, end }: FloatRange = { start: 0, end: 0 }): WantedBytes {
  const bytes = (end - start) * FLOAT_BYTES
  return { source: { kind: 'gradient', byteOffset: start * FLOAT_BYTES, bytes }, reserved: bytes }
}

function staging(all: readonly WantedBytes[]): Pick<Section, 'copies' | 'bytes'> {
  let bytes = 0
  const copies = all.map(({ source, reserved }) => {
    bytes += reserved
    return { source, offset: bytes - reserved }
  })
  return { copies, bytes: Math.max(bytes, FLOAT_BYTES) }
}

function writtenRanges({ resources }: PlannedPass): FloatRange[] {
  return resources.flatMap(({ kind, byteOffset, bytes }) =>
    kind === 'gradient' ? [{ start: byteOffset / FLOAT_BYTES, end: (byteOffset + bytes) / FLOAT_BYTES }] : [],
  )
}

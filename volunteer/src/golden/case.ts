// A golden file as what it holds, and how far our numbers are from it. Independent of files or terminals.

import {
  type AdapterDescription,
  float32Values,
  GridError,
  int32Values,
  isGridError,
  type Precision,
  readSafetensors,
  type StoredTensor,
} from '@starling-grid/protocol'
import type { Graph } from '../graph/build.ts'
import type { GraphRunner, Values } from '../graph/runner.ts'

export interface GoldenCase {
  /** the `case` JSON of the file */
  readonly description: Readonly<Record<string, unknown>>
  readonly tensors: ReadonlyMap<string, StoredTensor>
}

/** What cases run on. */
export interface GoldenBackend {
  readonly adapter: AdapterDescription
  /** absent: f32 */
  readonly precision?: Precision
  createRunner(graph: Graph, capacity: number): Promise<GraphRunner>
}

export interface Comparison {
  /** what was compared: `y`, `grad.x`, `losses` … */
  readonly what: string
  /** relative, 0 for equal */
  readonly error: number
  readonly tolerance: number
}

export type GoldenResult =
  | { readonly verdict: 'passed' | 'failed'; readonly comparisons: readonly Comparison[] }
  | { readonly verdict: 'unsupported'; readonly reason: string }

/** @throws GridError('message-malformed') when the bytes hold no golden case */
export function readGoldenCase(bytes: Uint8Array): GoldenCase {
  const { tensors, metadata } = readSafetensors(bytes)
  const description = parseDescription(metadata['case'])
  return { description, tensors }
}

function parseDescription(text: string | undefined): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text ?? '')
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  } catch {
    // falls through: not JSON is refused like not an object
  }
  throw new GridError('message-malformed', 'expected a golden case with a JSON object `case` in its metadata, got none')
}

/**
 * Agreement with float64 where values between kernels are stored as f16: of single results, and of what a whole
 * training run moved.
 */
const HALF_TOLERANCE = 2e-2
const HALF_FINAL_TOLERANCE = 5e-2

/** The tolerance of this backend, where that of f32 is `exact`. */
export function toleranceFor({ precision }: GoldenBackend, exact: number, what: 'result' | 'final' = 'result'): number {
  if (precision !== 'f16') return exact
  return what === 'final' ? HALF_FINAL_TOLERANCE : HALF_TOLERANCE
}

export function judge(comparisons: readonly Comparison[]): GoldenResult {
  // written so that NaN fails
  const passed = comparisons.every(({ error, tolerance }) => error <= tolerance)
  return { verdict: passed ? 'passed' : 'failed', comparisons }
}

/** Runs a case; what this version cannot build is unsupported, not failed. */
export async function orUnsupported(run: () => Promise<GoldenResult>): Promise<GoldenResult> {
  try {
    return await run()
  } catch (error) {
    if (isGridError(error) && ['model-invalid', 'job-invalid', 'unsupported'].includes(error.code))
      return { verdict: 'unsupported', reason: error.message }
    throw error
  }
}

/** ‖ours − wanted‖ / ‖wanted‖ */
export function relativeError(ours: ArrayLike<number>, wanted: ArrayLike<number>): number {
  if (ours.length !== wanted.length) return Infinity
  let difference = 0
  let norm = 0
  for (let i = 0; i < wanted.length; i++) {
    const value = wanted[i] ?? NaN
    difference += ((ours[i] ?? NaN) - value) ** 2
    norm += value ** 2
  }
  return difference === 0 ? 0 : Math.sqrt(difference / norm)
}

/** A tensor that the case must have. */
export function tensorOf({ tensors }: GoldenCase, name: string): StoredTensor {
  const tensor = tensors.get(name)
  if (!tensor) throw new GridError('message-malformed', `expected the tensor \`${name}\` in the golden case, got none`)
  return tensor
}

export function floatsOf(golden: GoldenCase, name: string): Float32Array {
  return float32Values(tensorOf(golden, name))
}

/** Floats or indices as stored; bytes become floats times `scale`. */
export function valuesOf(golden: GoldenCase, name: string, scale = 1): Values {
  const tensor = tensorOf(golden, name)
  if (tensor.dtype === 'U8') return Float32Array.from(tensor.data, (byte) => byte * scale)
  return tensor.dtype === 'I32' ? int32Values(tensor) : float32Values(tensor)
}

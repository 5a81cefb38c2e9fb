// A gradient as the body of a push: one f32 vector, or, for matrices of which few rows were touched, only those rows. What is
// left out is zero. The header of the push says which matrices are sparse and how many rows of each follow, so that the
// length of the body is known before it is read. Little-endian, pieces in the order of the layout: a dense entry is its
// values; a sparse one is its row numbers (u32, ascending), then the rows.

import { GridError, type SparsePart } from '@starling-grid/protocol'
import { layerShapes } from './expand.ts'
import type { ParameterEntry, ParameterLayout } from './param-layout.ts'
import type { ModelSpec } from './spec.ts'

/** A pushed gradient that was checked; its memory is that of the body. */
export interface PushedGradient {
  /** Σ gradients, (total,), into `vector`: every element is written */
  writeTo(vector: Float32Array): void
}

/** Neighbouring dense entries are one piece; a sparse entry is one. */
interface Piece {
  readonly offset: number
  readonly length: number
  readonly sparse: { readonly name: string; readonly rows: number; readonly of: number; readonly columns: number } | undefined
}
export interface GradientForm {
  readonly bytes: number
  readonly pieces: readonly Piece[]
}

const WORD_BYTES = 4
/** A matrix goes sparse below this share of its rows: beyond it the row numbers and the second look are not worth it. */
const SPARSE_SHARE = 0.5

/**
 * What the body of a push must look like.
 * @throws GridError 'gradient-shape' when a sparse part is no trained matrix of this model, comes twice or has too many rows
 */
export function gradientForm({ entries }: ParameterLayout, sparse: readonly SparsePart[] = []): GradientForm {
  const parts = new Map(sparse.map(({ name, rows }) => [name, rows]))
  if (parts.size < sparse.length) throw new GridError('gradient-shape', 'a parameter is named twice among the sparse ones')
  const pieces: Piece[] = []
  for (const entry of entries) {
    const rows = parts.get(entry.name)
    const last = pieces.at(-1)
    if (rows !== undefined) pieces.push(sparsePiece(entry, rows))
    else if (last !== undefined && last.sparse === undefined) pieces[pieces.length - 1] = { ...last, length: last.length + entry.length }
    else pieces.push({ offset: entry.offset, length: entry.length, sparse: undefined })
    parts.delete(entry.name)
  }
  const [unknown] = parts.keys()
  if (unknown !== undefined) throw new GridError('gradient-shape', `this model has no parameter "${unknown.slice(0, 80)}" whose rows could be pushed alone`)
  return { pieces, bytes: WORD_BYTES * pieces.reduce((sum, piece) => sum + wordsOf(piece), 0) }
}

function sparsePiece({ name, shape, kind, offset, length }: ParameterEntry, rows: number): Piece {
  const [of = 0, columns = 0] = shape
  if (shape.length !== 2 || kind === 'statistic') throw new GridError('gradient-shape', `"${name}" is no matrix that is trained: its rows cannot be pushed alone`)
  if (rows > of) throw new GridError('gradient-shape', `"${name}" has ${of} rows, got ${rows}`)
  return { offset, length, sparse: { name, rows, of, columns } }
}

function wordsOf({ length, sparse }: Piece): number {
  return sparse === undefined ? length : sparse.rows * (1 + sparse.columns)
}

/**
 * The gradient in the body of a push; nothing of the model's size is allocated.
 * @throws GridError 'gradient-shape' for another length or row numbers that do not ascend or are out of range, 'gradient-not-finite'
 */
export function readGradient(body: Uint8Array, { pieces, bytes }: GradientForm): PushedGradient {
  if (body.byteLength !== bytes) throw new GridError('gradient-shape', `this gradient has ${bytes} bytes, got ${body.byteLength}`)
  const aligned = body.byteOffset % WORD_BYTES === 0 ? body : new Uint8Array(body)
  let at = aligned.byteOffset
  const parts = pieces.map(({ offset, length, sparse }) => {
    const rows = new Uint32Array(aligned.buffer, at, sparse?.rows ?? 0)
    at += rows.byteLength
    const values = new Float32Array(aligned.buffer, at, sparse === undefined ? length : sparse.rows * sparse.columns)
    at += values.byteLength
    if (sparse !== undefined) requireRows(rows, sparse)
    requireFinite(values)
    return { offset, length, columns: sparse?.columns, rows, values }
  })
  return {
    writeTo(vector) {
      for (const { offset, length, columns, rows, values } of parts) {
        if (columns === undefined) vector.set(values, offset)
        else {
          vector.fill(0, offset, offset + length)
          for (const [i, row] of rows.entries()) vector.set(values.subarray(i * columns, (i + 1) * columns), offset + row * columns)
        }
      }
    },
  }
}

function requireRows(rows: Uint32Array, { name, of }: { readonly name: string; readonly of: number }): void {
  let least = 0
  for (const row of rows) {
    if (row < least || row >= of) throw new GridError('gradient-shape', `rows of "${name}" ascend and are below ${of}, got ${row} after ${least - 1}`)
    least = row + 1
  }
}

function requireFinite(values: Float32Array): void {
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? 0
    if (value - value !== 0) throw new GridError('gradient-not-finite', `an element of the gradient is ${value}`) // a third of isFinite's time
  }
}

/** Tables of embedding layers: a batch touches the rows of its tokens, and no others unless the table is the head's weight too. */
export function embeddingTables(spec: ModelSpec, { entries }: ParameterLayout): ParameterEntry[] {
  const names = new Set(layerShapes(spec).flatMap(({ layer, parameters }) => (layer.type === 'embedding' ? parameters.map(({ name }) => name) : [])))
  return entries.filter(({ name, shape }) => names.has(name) && shape.length === 2)
}

/** The shortest body for this gradient: rows of `tables` that are zero are left out where that is more than half of them. */
export function writeGradient(gradient: Float32Array, layout: ParameterLayout, tables: readonly ParameterEntry[]): { readonly body: Uint8Array; readonly sparse: readonly SparsePart[] } {
  const touched = new Map(tables.map((entry) => [entry.name, touchedRows(gradient, entry)]))
  const sparse = tables.flatMap(({ name, shape: [rows = 0] }) => {
    const count = touched.get(name)?.length ?? rows
    return count < SPARSE_SHARE * rows ? [{ name, rows: count }] : []
  })
  if (sparse.length === 0) return { body: new Uint8Array(gradient.buffer, gradient.byteOffset, gradient.byteLength), sparse }
  const { bytes, pieces } = gradientForm(layout, sparse)
  const buffer = new ArrayBuffer(bytes)
  const [values, numbers] = [new Float32Array(buffer), new Uint32Array(buffer)]
  let at = 0
  for (const { offset, length, sparse: part } of pieces) {
    const rows = part === undefined ? [] : (touched.get(part.name) ?? [])
    numbers.set(rows, at)
    at += rows.length
    const chunks = part === undefined ? [gradient.subarray(offset, offset + length)] : rows.map((row) => gradient.subarray(offset + row * part.columns, offset + (row + 1) * part.columns))
    for (const chunk of chunks) {
      values.set(chunk, at)
      at += chunk.length
    }
  }
  return { body: new Uint8Array(buffer), sparse }
}

function touchedRows(gradient: Float32Array, { offset, shape: [rows = 0, columns = 0] }: ParameterEntry): number[] {
  const touched: number[] = []
  for (let row = 0; row < rows; row++) if (gradient.subarray(offset + row * columns, offset + (row + 1) * columns).some((value) => value !== 0)) touched.push(row)
  return touched
}

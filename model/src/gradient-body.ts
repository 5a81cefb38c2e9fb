// A gradient as the body of a push: one f32 vector, or, for matrices of which few rows were touched, only those rows.
// What is left out is zero. The header of the push names the sparse matrices and the number of rows of each. So the
// length of the body is known before it is read. Little-endian, pieces in the order of the layout: a dense entry is its
// values. A sparse one is its row numbers (u32, ascending), then the rows. Parameters that are pulled by rows look the
// same. The difference of a round may be encoded (encoded-vector.ts): then it is dense.

import { type GradientEncoding, GridError, type SparsePart } from '@starling-grid/protocol'
import { allFinite } from '@starling-grid/shaders'
import { completed, encodedVectorBytes, type LossyEncoding } from './encoded-vector.ts'
import { layerShapes } from './expand.ts'
import { type GradientRun, runsOf } from './gradient-runs.ts'
import type { ParameterEntry, ParameterLayout } from './param-layout.ts'
import type { ModelSpec } from './spec.ts'

/** Neighbouring dense entries are one piece; a sparse entry is one. */
interface BodyPiece {
  readonly offset: number
  readonly length: number
  readonly sparse:
    | { readonly name: string; readonly rows: number; readonly of: number; readonly columns: number }
    | undefined
}

export interface GradientForm {
  readonly bytes: number
  readonly pieces: readonly BodyPiece[]
  /** of the whole vector, which is dense then */
  readonly encoding?: LossyEncoding
}

const WORD_BYTES = 4
/** Rows that are checked in one piece: less than a millisecond. */
const PIECE_ROWS = 256 * 1024
/**
 * A matrix goes sparse below this share of its rows: beyond it the row numbers and the second look are not worth it.
 */
const SPARSE_SHARE = 0.5

/**
 * What the body of a push must look like.
 * @throws GridError 'gradient-shape' when a sparse part is no trained matrix of this model, comes twice or has too many
 * rows
 */
export function gradientForm(
  { entries, total }: ParameterLayout,
  sparse: readonly SparsePart[] = [],
  encoding: GradientEncoding = 'f32',
): GradientForm {
  if (encoding !== 'f32') {
    if (sparse.length > 0) throw new GridError('gradient-shape', 'expected all rows of an encoded push, got some')
    const dense = [{ offset: 0, length: total, sparse: undefined }]
    return { pieces: dense, bytes: encodedVectorBytes(total, encoding), encoding }
  }
  const parts = new Map(sparse.map(({ name, rows }) => [name, rows]))
  if (parts.size < sparse.length)
    throw new GridError('gradient-shape', 'expected each sparse parameter once, got one twice')
  const pieces: BodyPiece[] = []
  for (const entry of entries) {
    const rows = parts.get(entry.name)
    const last = pieces.at(-1)
    if (rows !== undefined) pieces.push(sparsePiece(entry, rows))
    else if (last !== undefined && last.sparse === undefined)
      pieces[pieces.length - 1] = { ...last, length: last.length + entry.length }
    else pieces.push({ offset: entry.offset, length: entry.length, sparse: undefined })
    parts.delete(entry.name)
  }
  const [unknown] = parts.keys()
  if (unknown !== undefined)
    throw new GridError(
      'gradient-shape',
      `expected a parameter whose rows are pushed alone, got "${unknown.slice(0, 80)}"`,
    )
  return { pieces, bytes: WORD_BYTES * pieces.reduce((sum, piece) => sum + wordsOf(piece), 0) }
}

function sparsePiece({ name, shape, kind, offset, length }: ParameterEntry, rows: number): BodyPiece {
  const [of = 0, columns = 0] = shape
  if (shape.length !== 2 || kind === 'statistic')
    throw new GridError('gradient-shape', `expected a trained matrix as sparse part, got "${name}"`)
  if (rows > of) throw new GridError('gradient-shape', `"${name}": expected at most ${of} rows, got ${rows}`)
  return { offset, length, sparse: { name, rows, of, columns } }
}

function wordsOf({ length, sparse }: BodyPiece): number {
  return sparse === undefined ? length : sparse.rows * (1 + sparse.columns)
}

/**
 * A body that is not encoded → into (total,): every element is written.
 * @throws GridError as readingRuns; 'gradient-not-finite'
 */
export function readGradient(body: Uint8Array, form: GradientForm, into: Float32Array): void {
  const runs = completed(readingRuns(body, form))
  into.fill(0)
  for (const { start, values } of runs()) {
    if (!allFinite(values)) throw new GridError('gradient-not-finite', 'expected a finite vector, got NaN or infinity')
    into.set(values, start)
  }
}

/**
 * The runs of a body that is not encoded, whose memory they share; in pieces, between which the caller may do other
 * work. Values may be any.
 * @throws GridError 'gradient-shape' for another length or row numbers that do not ascend or are out of range
 */
export function* readingRuns(
  body: Uint8Array,
  { pieces, bytes }: GradientForm,
): Generator<undefined, () => Generator<GradientRun>> {
  if (body.byteLength !== bytes)
    throw new GridError('gradient-shape', `expected a body of ${bytes} bytes, got ${body.byteLength}`)
  const aligned = body.byteOffset % WORD_BYTES === 0 ? body : new Uint8Array(body)
  let at = aligned.byteOffset
  const parts = pieces.map(({ offset, length, sparse }) => {
    const rows = new Uint32Array(aligned.buffer, at, sparse?.rows ?? 0)
    at += rows.byteLength
    const values = new Float32Array(aligned.buffer, at, sparse === undefined ? length : sparse.rows * sparse.columns)
    at += values.byteLength
    return { offset, length, sparse, rows, values }
  })
  for (const { sparse, rows } of parts) if (sparse !== undefined) yield* checkingRows(rows, sparse)
  return () => runsOfParts(parts)
}

interface BodyPart extends BodyPiece {
  readonly rows: Uint32Array
  readonly values: Float32Array
}

function* runsOfParts(parts: readonly BodyPart[]): Generator<GradientRun> {
  for (const { offset, sparse, rows, values } of parts)
    if (sparse === undefined) yield* runsOf(values, offset)
    else
      for (const [i, row] of rows.entries())
        yield* runsOf(values.subarray(sparse.columns * i, sparse.columns * (i + 1)), offset + sparse.columns * row)
}

function* checkingRows(rows: Uint32Array, part: { readonly name: string; readonly of: number }): Generator<undefined> {
  let min = 0
  for (let start = 0; start < rows.length; start += PIECE_ROWS) {
    min = requireRows(rows.subarray(start, start + PIECE_ROWS), part, min)
    if (start + PIECE_ROWS <= rows.length) yield
  }
}

/** The lowest row that may follow. @throws GridError 'gradient-shape' */
function requireRows(
  rows: Uint32Array,
  { name, of }: { readonly name: string; readonly of: number },
  lowest = 0,
): number {
  let least = lowest
  for (const row of rows) {
    if (row < least || row >= of)
      throw new GridError(
        'gradient-shape',
        `expected ascending rows of "${name}" below ${of}, got ${row} after ${least - 1}`,
      )
    least = row + 1
  }
  return least
}

/**
 * Tables of embedding layers: a batch touches the rows of its tokens, and no others unless the table is the head's
 * weight too.
 */
export function embeddingTables(spec: ModelSpec, { entries }: ParameterLayout): ParameterEntry[] {
  const names = new Set(
    layerShapes(spec).flatMap(({ layer, parameters }) =>
      layer.type === 'embedding' ? parameters.map(({ name }) => name) : [],
    ),
  )
  return entries.filter(({ name, shape }) => names.has(name) && shape.length === 2)
}

/**
 * Of these tables, the ones whose only use is to be looked up with the model's input: a batch needs the rows of its
 * tokens.
 */
export function inputTables(spec: ModelSpec, layout: ParameterLayout): ParameterEntry[] {
  const placed = layerShapes(spec)
  const uses = (name: string): number =>
    placed.reduce((sum, { parameters }) => sum + parameters.filter((parameter) => parameter.name === name).length, 0)
  const onInput = new Set(
    placed.flatMap(({ layer, inputs, parameters }) =>
      layer.type === 'embedding' && inputs[0] === 0 ? parameters.map(({ name }) => name) : [],
    ),
  )
  return embeddingTables(spec, layout).filter(({ name }) => onInput.has(name) && uses(name) === 1)
}

/** Rows of matrices, ascending, by the name of the matrix. */
export type RowsByName = ReadonlyMap<string, ArrayLike<number>>

/** The header's entry for these rows. */
export function sparseParts(rows: RowsByName): SparsePart[] {
  return [...rows].map(([name, { length }]) => ({ name, rows: length }))
}

/**
 * The shortest body for this gradient: rows of `tables` that are zero are left out where that is more than half of
 * them.
 */
export function writeGradient(
  gradient: Float32Array,
  layout: ParameterLayout,
  tables: readonly ParameterEntry[],
): { readonly body: Uint8Array; readonly sparse: readonly SparsePart[] } {
  const rows = new Map(tables.map((entry) => [entry.name, touchedRows(gradient, entry)]))
  for (const entry of tables) if (!isSparse(rows.get(entry.name)?.length ?? 0, entry)) rows.delete(entry.name)
  if (rows.size === 0)
    return { body: new Uint8Array(gradient.buffer, gradient.byteOffset, gradient.byteLength), sparse: [] }
  return { body: writeRows(gradient, layout, rows), sparse: sparseParts(rows) }
}

/** Few enough rows to be sent alone. */
export function isSparse(count: number, { shape: [rows = 0] }: ParameterEntry): boolean {
  return count < SPARSE_SHARE * rows
}

/** A vector with only these rows of these matrices. @throws GridError 'gradient-shape' as gradientForm */
export function writeRows(
  vector: Float32Array,
  layout: ParameterLayout,
  rowsByName: RowsByName,
): Uint8Array<ArrayBuffer> {
  const { bytes, pieces } = gradientForm(layout, sparseParts(rowsByName))
  const buffer = new ArrayBuffer(bytes)
  const [values, numbers] = [new Float32Array(buffer), new Uint32Array(buffer)]
  let at = 0
  for (const { offset, length, sparse: part } of pieces) {
    const rows = Array.from(part === undefined ? [] : (rowsByName.get(part.name) ?? []))
    numbers.set(rows, at)
    at += rows.length
    const chunks =
      part === undefined
        ? [vector.subarray(offset, offset + length)]
        : rows.map((row) => vector.subarray(offset + row * part.columns, offset + (row + 1) * part.columns))
    for (const chunk of chunks) {
      values.set(chunk, at)
      at += chunk.length
    }
  }
  return new Uint8Array(buffer)
}

/** Row numbers as the body of a request for them: u32, one matrix after the other, in the order of the layout. */
export function writeRowNumbers(layout: ParameterLayout, rowsByName: RowsByName): Uint8Array<ArrayBuffer> {
  const numbers = layout.entries.flatMap(({ name }) => Array.from(rowsByName.get(name) ?? []))
  return new Uint8Array(Uint32Array.from(numbers).buffer)
}

/** @throws GridError 'gradient-shape' for another length, or row numbers that do not ascend or are out of range */
export function readRowNumbers(body: Uint8Array, { pieces }: GradientForm): RowsByName {
  const parts = pieces.flatMap(({ sparse }) => (sparse === undefined ? [] : [sparse]))
  const bytes = WORD_BYTES * parts.reduce((sum, { rows }) => sum + rows, 0)
  if (body.byteLength !== bytes)
    throw new GridError('gradient-shape', `expected row numbers of ${bytes} bytes, got ${body.byteLength}`)
  const aligned = body.byteOffset % WORD_BYTES === 0 ? body : new Uint8Array(body)
  let at = aligned.byteOffset
  return new Map(
    parts.map((part) => {
      const rows = new Uint32Array(aligned.buffer, at, part.rows)
      at += rows.byteLength
      requireRows(rows, part)
      return [part.name, rows]
    }),
  )
}

function touchedRows(gradient: Float32Array, { offset, shape: [rows = 0, columns = 0] }: ParameterEntry): number[] {
  const touched: number[] = []
  for (let row = 0; row < rows; row++)
    if (gradient.subarray(offset + row * columns, offset + (row + 1) * columns).some((value) => value !== 0))
      touched.push(row)
  return touched
}

// Pulls what one batch needs of a version. Of embedding tables that are only looked up it pulls the rows of the batch's
// tokens, where these are fewer than half. The other rows stay zero, and nothing reads them.
import {
  gradientForm,
  isSparse,
  type ParameterEntry,
  type ParameterLayout,
  readGradient,
  type RowsByName,
  sparseParts,
  writeRowNumbers,
} from '@starling-grid/model'
import type { VersionRef } from '@starling-grid/protocol'
import type { NamedParameters } from '../compute.ts'
import type { RowsWanted } from '../coordinator-http.ts'
import type { Batch } from '../graph/executor.ts'

/** Undefined: the batch needs too many rows, or the model has no such table. */
export function rowsOfBatch({ x }: Batch, lookups: readonly ParameterEntry[]): RowsByName | undefined {
  if (!(x instanceof Int32Array)) return undefined
  const tokens = [...new Set(x)].toSorted((a, b) => a - b)
  const sparse = lookups.filter((entry) => isSparse(tokens.length, entry))
  return sparse.length === 0 ? undefined : new Map(sparse.map(({ name }) => [name, tokens]))
}

export interface RowSource {
  readonly layout: ParameterLayout
  ask(wanted: RowsWanted): Promise<Uint8Array>
}

/** @throws GridError 'base-stale' when the version is gone, 'gradient-shape' for another answer than was asked for */
export async function pullRows(
  version: VersionRef,
  rows: RowsByName,
  { layout, ask }: RowSource,
): Promise<NamedParameters> {
  const parts = sparseParts(rows)
  const form = gradientForm(layout, parts)
  const answer = await ask({ parts, numbers: writeRowNumbers(layout, rows), bytes: form.bytes })
  const parameters = new Float32Array(layout.total)
  readGradient(answer, form, parameters)
  return { version, parameters, partial: true }
}

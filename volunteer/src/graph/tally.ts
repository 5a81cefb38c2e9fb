// Model outputs and targets → what a validation block counts beside its loss (protocol/src/tally.ts).
import { type Tally, TOP } from '@starling-grid/protocol'
import type { Batch } from './executor.ts'

/** output (samples, size), y as the loss takes it */
export function tallyOf(kind: Tally['of'], output: Float32Array, y: Batch['y'], samples: number): Tally {
  const size = samples === 0 ? 0 : output.length / samples
  switch (kind) {
    case 'classes':
      return { of: 'classes', top: topClasses(output, y, size) }
    case 'values':
      return valueSums(output, y, size)
    case 'labels':
      return labelCounts(output, y)
    case 'tokens':
      return { of: 'tokens' }
    default:
      return kind satisfies never
  }
}

/** Of classes with equal outputs those of smaller numbers come first, as in the arg-max. */
function topClasses(output: Float32Array, y: Batch['y'], size: number): number {
  let top = 0
  for (const [sample, label] of y.entries()) {
    const begin = sample * size
    const own = output[begin + label] ?? Number.NaN
    let before = 0
    for (let i = 0; i < size; i++) {
      const other = output[begin + i] ?? 0
      if (other > own || (other === own && i < label)) before++
    }
    if (own === own && before < TOP) top++
  }
  return top
}

function valueSums(output: Float32Array, y: Batch['y'], size: number): Tally {
  let errors = 0
  const totals = Array.from({ length: size }, () => 0)
  const squares = Array.from({ length: size }, () => 0)
  for (const [i, wanted] of y.entries()) {
    const column = i % size
    errors += Math.abs((output[i] ?? 0) - wanted)
    totals[column] = (totals[column] ?? 0) + wanted
    squares[column] = (squares[column] ?? 0) + wanted * wanted
  }
  return { of: 'values', errors, totals, squares }
}

/** A label is found where its output is above 0, a probability above ½. */
function labelCounts(output: Float32Array, y: Batch['y']): Tally {
  const counts = { found: 0, wrong: 0, missed: 0 }
  for (const [i, wanted] of y.entries()) {
    const says = (output[i] ?? 0) > 0
    if (wanted > 0.5) counts[says ? 'found' : 'missed']++
    else if (says) counts.wrong++
  }
  return { of: 'labels', ...counts }
}

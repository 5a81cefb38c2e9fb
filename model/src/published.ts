// Tensors as published files hold them: some matrices have rows and columns exchanged (Conv1D of GPT-2).

import type { Shape } from '@starling-grid/shaders'

/** What is known of a tensor of ours that published files hold too. */
interface PublishedTensor {
  readonly shape: Shape
  readonly transposed?: true
}

/** The shape that published files have for it. */
export function publishedShape({ shape, transposed }: PublishedTensor): Shape {
  return transposed ? shape.toReversed() : shape
}

/** Values as a published file has them → in our order; the same array where nothing differs. */
export function fromPublished({ shape, transposed }: PublishedTensor, values: Float32Array): Float32Array {
  const [rows = 0, columns = 0] = shape
  return transposed ? exchanged(values, columns, rows) : values
}

/** Values in our order → as published files have them; the same array where nothing differs. */
export function toPublished({ shape, transposed }: PublishedTensor, values: Float32Array): Float32Array {
  const [rows = 0, columns = 0] = shape
  return transposed ? exchanged(values, rows, columns) : values
}

// (rows, columns) → (columns, rows)
function exchanged(values: Float32Array, rows: number, columns: number): Float32Array {
  const turned = new Float32Array(values.length)
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) turned[c * rows + r] = values[r * columns + c] ?? 0
  return turned
}

// Plain unpacking of a matrix that lies packed (packed.ts). packed (rows, words) → y (rows, columns), or, of an
// embedding, the rows of ids from `first` on.

import type { EmbeddingDims, KernelOperands, UnpackDims } from '../kernels.ts'
import { floatOfHalf, NIBBLE_ZERO, packedRow, type PackedStorage, SCALE_GROUP } from '../packed.ts'

export function unpackForward(
  { rows, columns, storage }: UnpackDims,
  _samples: number,
  { packed, y }: KernelOperands<'unpack.forward', Float32Array, Int32Array>,
): void {
  for (let row = 0; row < rows; row++) unpackRow({ packed, columns, storage }, row, y.subarray(row * columns))
}

// ids (R,) → y (R, channels), with R = samples · tokens
export function unpackRows(
  { tokens, vocab, channels, first = 0, storage }: EmbeddingDims & Pick<UnpackDims, 'storage'>,
  samples: number,
  { ids, packed, y }: KernelOperands<'unpack.rows', Float32Array, Int32Array>,
): void {
  for (let row = 0; row < samples * tokens; row++) {
    const id = (ids[row] ?? 0) - first
    if (id >= 0 && id < vocab) unpackRow({ packed, columns: channels, storage }, id, y.subarray(row * channels))
  }
}

interface PackedValues {
  readonly packed: Int32Array
  readonly columns: number
  readonly storage: PackedStorage
}

function unpackRow({ packed, columns, storage }: PackedValues, row: number, y: Float32Array): void {
  const { values, scales, words } = packedRow(columns, storage)
  const start = row * words
  const scale = new Float32Array(packed.buffer, packed.byteOffset + 4 * (start + values), scales)
  const bits = (column: number, each: number): number =>
    (packed[start + Math.floor((column * each) / 32)] ?? 0) >> ((column * each) % 32)
  for (let c = 0; c < columns; c++) {
    if (storage === 'f16') y[c] = floatOfHalf(bits(c, 16) & 0xffff)
    else {
      const whole = storage === 'int8' ? (bits(c, 8) << 24) >> 24 : (bits(c, 4) & 0xf) - NIBBLE_ZERO
      y[c] = whole * (scale[Math.floor(c / SCALE_GROUP)] ?? 0)
    }
  }
}

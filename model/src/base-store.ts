// The frozen parameters of an imported model as bytes: f32, f16, or groups of neighbours in eight or four bits with a
// scale each. Sums over them are f32 everywhere: what is read is f32 again. Vectors (norms, biases) stay f32.

import { floatTensor, float32Values, GridError, type StoredTensor } from '@starling-grid/protocol'
import { floatOfHalf, NIBBLE_ZERO, packedRow, type PackedStorage, SCALE_GROUP } from '@starling-grid/shaders'

export const STORAGES = ['f32', 'f16', 'int8', 'int4'] as const
export type Storage = (typeof STORAGES)[number]

const LARGEST = { int8: 127, int4: 7 } as const

/** The scales of a tensor lie beside it. */
const SCALES = '.scales'

/** Rows of a matrix → the tensors that hold them, under `name`. values (rows, columns) */
export function storeRows(
  name: string,
  values: Float32Array,
  { shape, storage }: { readonly shape: readonly number[]; readonly storage: Storage },
): (readonly [string, StoredTensor])[] {
  if (storage === 'f32' || shape.length < 2) return [[name, floatTensor(shape, values)]]
  if (storage === 'f16') return [[name, { dtype: 'F16', shape, data: halves(values) }]]
  const columns = shape.at(-1) ?? 1
  const scales = groupScales(values, columns, LARGEST[storage])
  const [rows, groups] = [values.length / columns, Math.ceil(columns / SCALE_GROUP)]
  const whole = quantized(values, columns, { scales, largest: LARGEST[storage] })
  const data = storage === 'int8' ? new Uint8Array(whole.buffer) : nibbles(whole)
  const stored: StoredTensor =
    storage === 'int8' ? { dtype: 'I8', shape, data } : { dtype: 'U8', shape: [data.length], data }
  return [
    [name, stored],
    [name + SCALES, floatTensor([rows, groups], scales)],
  ]
}

/**
 * What storeRows wrote, as f32 (rows, columns).
 * @throws GridError 'shard-corrupt' when the tensors are others
 */
export function readRows(
  name: string,
  tensors: ReadonlyMap<string, StoredTensor>,
  { length, columns }: { readonly length: number; readonly columns: number },
): Float32Array {
  const stored = tensors.get(name)
  const scales = tensors.get(name + SCALES)
  const values = stored === undefined ? undefined : decoded(stored, scales, { length, columns })
  if (values?.length !== length) throw corrupt(`${length} values of ${name.slice(0, 120)}`, stored)
  return values
}

function corrupt(wanted: string, stored: StoredTensor | undefined): GridError {
  return new GridError(
    'shard-corrupt',
    `expected ${wanted} in a shard of the base model, got ` +
      `${stored === undefined ? 'none' : `${stored.dtype} [${stored.shape.join(', ')}]`}; ` +
      "ask the coordinator's operator to import the model again",
  )
}

const STORAGE_OF: { readonly [K in StoredTensor['dtype']]?: Storage } = {
  F32: 'f32',
  F16: 'f16',
  I8: 'int8',
  U8: 'int4',
}

/** How rows are stored; undefined: not as storeRows does. */
export function storageOf(name: string, tensors: ReadonlyMap<string, StoredTensor>): Storage | undefined {
  const stored = tensors.get(name)
  return stored && STORAGE_OF[stored.dtype]
}

/**
 * What storeRows wrote, as a device holds it packed: (rows, words of a row).
 * @throws GridError 'shard-corrupt' when the tensors are others, or stored in another way
 */
export function packRows(
  name: string,
  tensors: ReadonlyMap<string, StoredTensor>,
  { rows, columns, storage }: { readonly rows: number; readonly columns: number; readonly storage: PackedStorage },
): Int32Array {
  const [stored, scales] = [tensors.get(name), tensors.get(name + SCALES)]
  const row = packedRow(columns, storage)
  const bytes = { f16: 2 * rows * columns, int8: rows * columns, int4: Math.ceil((rows * columns) / 2) }[storage]
  const scaleBytes = row.scales * rows * Float32Array.BYTES_PER_ELEMENT
  if (
    stored === undefined ||
    STORAGE_OF[stored.dtype] !== storage ||
    stored.data.length !== bytes ||
    (scaleBytes > 0 && (scales?.dtype !== 'F32' || scales.data.byteLength !== scaleBytes))
  )
    throw corrupt(`${rows * columns} values of ${name.slice(0, 120)} in ${storage}`, stored)
  const packed = new Uint8Array(4 * row.words * rows)
  for (let r = 0; r < rows; r++) {
    packed.set(bytesOfRow(stored.data, storage, { row: r, columns }), 4 * row.words * r)
    if (scales)
      packed.set(scales.data.subarray(4 * row.scales * r, 4 * row.scales * (r + 1)), 4 * (row.words * r + row.values))
  }
  return new Int32Array(packed.buffer)
}

/** Four bits of a row may begin in the middle of a byte. */
function bytesOfRow(
  data: Uint8Array,
  storage: PackedStorage,
  { row, columns }: { readonly row: number; readonly columns: number },
): Uint8Array {
  const bytes = { f16: 2, int8: 1, int4: 0.5 }[storage] * columns
  const first = row * bytes
  if (Number.isInteger(first)) return data.subarray(first, first + Math.ceil(bytes))
  const low = Math.floor(first)
  return Uint8Array.from(
    { length: Math.ceil(bytes) },
    (_, i) => ((data[low + i] ?? 0) >> 4) | (((data[low + i + 1] ?? 0) << 4) & 0xff),
  )
}

function decoded(
  stored: StoredTensor,
  scales: StoredTensor | undefined,
  { length, columns }: { readonly length: number; readonly columns: number },
): Float32Array | undefined {
  const { dtype, data } = stored
  if (dtype === 'F32') return float32Values(stored)
  if (dtype === 'F16') return floatsOfHalves(data)
  const groups = (length / columns) * Math.ceil(columns / SCALE_GROUP)
  if (scales?.dtype !== 'F32' || scales.data.byteLength !== groups * Float32Array.BYTES_PER_ELEMENT) return undefined
  if (dtype === 'I8' && data.length === length)
    return scaled(new Int8Array(data.buffer, data.byteOffset, length), float32Values(scales), columns)
  if (dtype === 'U8' && data.length === Math.ceil(length / 2))
    return scaled(wholeOfNibbles(data, length), float32Values(scales), columns)
  return undefined
}

function groupScales(values: Float32Array, columns: number, largest: number): Float32Array {
  const groups = Math.ceil(columns / SCALE_GROUP)
  const scales = new Float32Array((values.length / columns) * groups)
  for (const [i, value] of values.entries()) {
    const group = Math.floor(i / columns) * groups + Math.floor((i % columns) / SCALE_GROUP)
    scales[group] = Math.max(scales[group] ?? 0, Math.abs(value) / largest)
  }
  return scales
}

function quantized(
  values: Float32Array,
  columns: number,
  { scales, largest }: { readonly scales: Float32Array; readonly largest: number },
): Int8Array {
  const groups = Math.ceil(columns / SCALE_GROUP)
  return Int8Array.from(values, (value, i) => {
    const scale = scales[Math.floor(i / columns) * groups + Math.floor((i % columns) / SCALE_GROUP)] ?? 0
    return scale === 0 ? 0 : Math.max(-largest, Math.min(largest, Math.round(value / scale)))
  })
}

function scaled(whole: Int8Array, scales: Float32Array, columns: number): Float32Array {
  const groups = Math.ceil(columns / SCALE_GROUP)
  const values = new Float32Array(whole.length)
  for (let i = 0; i < whole.length; i++)
    values[i] =
      (whole[i] ?? 0) * (scales[Math.floor(i / columns) * groups + Math.floor((i % columns) / SCALE_GROUP)] ?? 0)
  return values
}

/** Two to a byte, the first in the low half. */
function nibbles(whole: Int8Array): Uint8Array {
  const packed = new Uint8Array(Math.ceil(whole.length / 2))
  for (const [i, value] of whole.entries())
    packed[i >> 1] = (packed[i >> 1] ?? 0) | ((value + NIBBLE_ZERO) << (4 * (i & 1)))
  return packed
}

function wholeOfNibbles(packed: Uint8Array, length: number): Int8Array {
  return Int8Array.from({ length }, (_, i) => (((packed[i >> 1] ?? 0) >> (4 * (i & 1))) & 0xf) - NIBBLE_ZERO)
}

const LARGEST_HALF = 65_504
const word = new Float32Array(1)
const bits = new Uint32Array(word.buffer)

/** IEEE half precision, rounded to even; what is larger becomes the largest. */
export function halves(values: Float32Array): Uint8Array {
  const half = new Uint16Array(values.length)
  for (let i = 0; i < values.length; i++) half[i] = halfOf(values[i] ?? 0)
  return new Uint8Array(half.buffer)
}

function halfOf(value: number): number {
  word[0] = Math.max(-LARGEST_HALF, Math.min(LARGEST_HALF, value))
  const all = bits[0] ?? 0
  const sign = (all >>> 16) & 0x8000
  const exponent = (all >>> 23) & 0xff
  // Below 2⁻¹⁴ a half has no leading one: a whole number of 2⁻²⁴.
  if (exponent < 113) return sign | roundedToEven(Math.abs(word[0] ?? 0) * 2 ** 24)
  const mantissa = all & 0x7fffff
  const kept = ((exponent - 112) << 10) | (mantissa >>> 13)
  const rest = mantissa & 0x1fff
  const up = rest > 0x1000 || (rest === 0x1000 && (kept & 1) === 1)
  return sign | (kept + (up ? 1 : 0))
}

function roundedToEven(value: number): number {
  const floor = Math.floor(value)
  const rest = value - floor
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor
}

export function floatsOfHalves(data: Uint8Array): Float32Array {
  const half = new Uint16Array(data.byteOffset % 2 === 0 ? data.buffer : data.slice().buffer)
  const from = data.byteOffset % 2 === 0 ? data.byteOffset / 2 : 0
  return Float32Array.from({ length: data.byteLength / 2 }, (_, i) => floatOfHalf(half[from + i] ?? 0))
}

/** The upper halves of f32. */
export function floatsOfBrain(data: Uint8Array): Float32Array {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  const words = Uint32Array.from({ length: data.byteLength / 2 }, (_, i) => view.getUint16(2 * i, true) << 16)
  return new Float32Array(words.buffer)
}

/** The values of a tensor of any float type. @throws GridError 'unsupported' for others */
export function floatValues(tensor: StoredTensor, name: string): Float32Array {
  switch (tensor.dtype) {
    case 'F32':
      return float32Values(tensor)
    case 'F16':
      return floatsOfHalves(tensor.data)
    case 'BF16':
      return floatsOfBrain(tensor.data)
    default:
      throw new GridError(
        'unsupported',
        `expected ${name} as F32, F16 or BF16, got ${tensor.dtype}; take the model in one of them`,
      )
  }
}

// Writers of the formats that `dataset import` reads, for tests: as small as the format allows.
import { zipSync } from 'fflate'
import type { SchemaElement } from 'hyparquet'
import { parquetWriteBuffer } from 'hyparquet-writer'
import { maskedCrc32c } from '../src/datasets/readers/crc32c.ts'

export interface NpyArray {
  /** `<f4`, `<i4`, `|u1`, `<U4` … */
  readonly type: string
  readonly shape: readonly number[]
  readonly data: Uint8Array
}

/** One .npy file of version 1. */
export function npy({ type, shape, data }: NpyArray, description?: string): Uint8Array {
  const dimensions = shape.length === 1 ? `${shape[0]},` : shape.join(', ')
  const text = description ?? `{'descr': '${type}', 'fortran_order': False, 'shape': (${dimensions}), }`
  const header = Buffer.from(`${text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11)}\n`)
  const prefix = Buffer.from([0x93, ...Buffer.from('NUMPY'), 1, 0, header.byteLength & 255, header.byteLength >> 8])
  return Buffer.concat([prefix, header, data])
}

export function npz(arrays: Readonly<Record<string, NpyArray>>, level: 0 | 6 = 6): Uint8Array {
  return zipSync(Object.fromEntries(Object.entries(arrays).map(([name, array]) => [`${name}.npy`, npy(array)])), {
    level,
  })
}

export function floats(values: Iterable<number>, shape: readonly number[]): NpyArray {
  return { type: '<f4', shape, data: bytesOf(Float32Array.from(values)) }
}

export function whole(values: Iterable<number>, shape: readonly number[]): NpyArray {
  return { type: '<i8', shape, data: bytesOf(BigInt64Array.from(Array.from(values, BigInt))) }
}

export function texts(values: readonly string[]): NpyArray {
  const size = Math.max(...values.map((value) => value.length))
  const points = values.flatMap((value) => Array.from({ length: size }, (_, i) => value.codePointAt(i) ?? 0))
  return { type: `<U${size}`, shape: [values.length], data: bytesOf(Uint32Array.from(points)) }
}

function bytesOf({ buffer }: Float32Array | BigInt64Array | Uint32Array): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer)
}

export type ColumnCells = readonly (number | string | readonly number[])[]

/** Row groups of `groupRows` rows, packed by Snappy. */
export function parquet(columns: Readonly<Record<string, ColumnCells>>, groupRows: number): Uint8Array {
  const names = Object.entries(columns)
  const schema: SchemaElement[] = [
    { name: 'root', num_children: names.length },
    ...names.flatMap(([name, [first]]) => elementsOf(name, first)),
  ]
  const columnData = names.map(([name, data]) => ({ name, data: [...data] }))
  return new Uint8Array(parquetWriteBuffer({ columnData, schema, rowGroupSize: groupRows }))
}

function elementsOf(name: string, cell: ColumnCells[number] | undefined): SchemaElement[] {
  if (typeof cell === 'string')
    return [{ name, type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type: 'REQUIRED' }]
  if (typeof cell === 'number') return [{ name, type: 'INT32', repetition_type: 'REQUIRED' }]
  return [
    { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', type: 'DOUBLE', repetition_type: 'OPTIONAL' },
  ]
}

/** One TFRecord of tf.train.Examples: numbers are floats where one has a fraction. */
export function tfRecord(columns: Readonly<Record<string, ColumnCells>>): Uint8Array {
  const rows = Object.values(columns)[0]?.length ?? 0
  const records = Array.from({ length: rows }, (_, row) =>
    framed(
      message(
        1,
        Object.entries(columns).map(([name, cells]) => message(1, [text(1, name), feature(cells[row] ?? 0)])),
      ),
    ),
  )
  return Buffer.concat(records)
}

export function framed(data: Uint8Array): Uint8Array {
  const length = Buffer.alloc(12)
  length.writeBigUInt64LE(BigInt(data.byteLength))
  length.writeUInt32LE(maskedCrc32c(length.subarray(0, 8)), 8)
  const sum = Buffer.alloc(4)
  sum.writeUInt32LE(maskedCrc32c(data))
  return Buffer.concat([length, data, sum])
}

function feature(cell: ColumnCells[number]): Uint8Array {
  if (typeof cell === 'string') return message(2, [message(1, [text(1, cell)])])
  const values = typeof cell === 'number' ? [cell] : cell
  return message(2, [message(2, [field(1, new Uint8Array(Float32Array.from(values).buffer))])])
}

// the few bytes of protocol buffers that these need: length-delimited fields
function message(id: number, parts: readonly Uint8Array[]): Uint8Array {
  return field(id, Buffer.concat(parts))
}

function text(id: number, value: string): Uint8Array {
  return field(id, Buffer.from(value))
}

function field(id: number, bytes: Uint8Array): Uint8Array {
  const head = [(id << 3) | 2]
  let length = bytes.byteLength
  for (; length > 127; length >>>= 7) head.push((length & 127) | 128)
  return Buffer.concat([Buffer.from([...head, length]), bytes])
}

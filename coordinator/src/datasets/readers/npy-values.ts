// Bytes of a NumPy array → its values: numbers as JavaScript has them, texts without what fills them up.
export type NpyValues = Uint8Array | Float32Array | Float64Array | Int32Array | readonly string[]

const UTF32_BYTES = 4
const LARGEST_CODE_POINT = 0x10ffff

/** `count` values of a type that the header's check let through. */
export function npyValues(type: string, bytes: Uint8Array, count: number): NpyValues {
  const isLittle = type[0] !== '>'
  const kind = type.slice(1)
  if (kind.startsWith('U') || kind.startsWith('S')) return texts(kind, bytes, { count, isLittle })
  if (kind === 'u1' || kind === 'b1') return bytes.subarray(0, count)
  if (kind === 'f4' && isLittle && bytes.byteOffset % 4 === 0)
    return new Float32Array(bytes.buffer, bytes.byteOffset, count)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const read = READERS[kind]
  if (read === undefined) throw new Error(`internal: no reader of ${type}`)
  const [size, value] = read
  return Float64Array.from({ length: count }, (_, i) => value(view, i * size, isLittle))
}

type ReadNumber = (view: DataView, at: number, isLittle: boolean) => number

/** Bytes and reader of each kind. */
const READERS: Readonly<Record<string, readonly [number, ReadNumber]>> = {
  i1: [1, (view, at) => view.getInt8(at)],
  i2: [2, (view, at, isLittle) => view.getInt16(at, isLittle)],
  u2: [2, (view, at, isLittle) => view.getUint16(at, isLittle)],
  i4: [4, (view, at, isLittle) => view.getInt32(at, isLittle)],
  u4: [4, (view, at, isLittle) => view.getUint32(at, isLittle)],
  i8: [8, (view, at, isLittle) => Number(view.getBigInt64(at, isLittle))],
  u8: [8, (view, at, isLittle) => Number(view.getBigUint64(at, isLittle))],
  f2: [2, (view, at, isLittle) => half(view.getUint16(at, isLittle))],
  f4: [4, (view, at, isLittle) => view.getFloat32(at, isLittle)],
  f8: [8, (view, at, isLittle) => view.getFloat64(at, isLittle)],
}

/** IEEE 754 binary16. */
function half(bits: number): number {
  const sign = bits >> 15 === 0 ? 1 : -1
  const [exponent, fraction] = [(bits >> 10) & 0x1f, bits & 0x3ff]
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : Number.NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

interface TextCells {
  readonly count: number
  readonly isLittle: boolean
}

function texts(kind: string, bytes: Uint8Array, { count, isLittle }: TextCells): string[] {
  const size = Number(kind.slice(1)) * (kind.startsWith('U') ? UTF32_BYTES : 1)
  const decode = kind.startsWith('U') ? (part: Uint8Array) => utf32(part, isLittle) : utf8
  return Array.from({ length: count }, (_, i) => decode(bytes.subarray(i * size, (i + 1) * size)))
}

function utf32(bytes: Uint8Array, isLittle: boolean): string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let text = ''
  for (let at = 0; at < bytes.byteLength; at += UTF32_BYTES) {
    const point = view.getUint32(at, isLittle)
    if (point === 0) break
    text += point > LARGEST_CODE_POINT ? '\ufffd' : String.fromCodePoint(point)
  }
  return text
}

function utf8(bytes: Uint8Array): string {
  const end = bytes.indexOf(0)
  return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end))
}

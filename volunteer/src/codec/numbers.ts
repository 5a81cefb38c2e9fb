// The arrays that collectives carry: how two of them become one, and how they look as bytes. Here is the plain one of
// the codecs that work chunk by chunk. Independent of ranks, frames or links.
import { GridError } from '@starling-grid/protocol'
import { type Codec, type Movable, requireBytes } from '@starling-grid/protocol/floats'

/** What can be reduced. */
export type Numbers = Float32Array | Int32Array

/** `sum` of integers wraps at 2³²; `mean` is for floats only. NaN wins in all of them. */
export type ReduceOp = 'sum' | 'mean' | 'min' | 'max'

/** A new array of the same kind, all zeros. */
export function emptyLike<T extends Movable>(values: T, length: number): T {
  return new (values.constructor as new (length: number) => T)(length)
}

export function copyOf<T extends Movable>(values: T): T {
  return values.slice() as T
}

export function kindOf(values: Movable): 'f32' | 'i32' | 'u8' {
  if (values instanceof Float32Array) return 'f32'
  return values instanceof Int32Array ? 'i32' : 'u8'
}

/** into[i] = into[i] ∘ from[i]. The mean is a sum here: `finish` divides once, at the end. */
export function combine(op: ReduceOp, into: Numbers, from: Numbers): void {
  if (op === 'min') for (let i = 0; i < into.length; i++) into[i] = Math.min(into[i] ?? 0, from[i] ?? 0)
  else if (op === 'max') for (let i = 0; i < into.length; i++) into[i] = Math.max(into[i] ?? 0, from[i] ?? 0)
  else add(into, from)
}

/** Four a turn: half the time of one. */
function add(into: Numbers, from: Numbers): void {
  let i = 0
  for (const end = into.length & ~3; i < end; i += 4) {
    into[i] = (into[i] ?? 0) + (from[i] ?? 0)
    into[i + 1] = (into[i + 1] ?? 0) + (from[i + 1] ?? 0)
    into[i + 2] = (into[i + 2] ?? 0) + (from[i + 2] ?? 0)
    into[i + 3] = (into[i + 3] ?? 0) + (from[i + 3] ?? 0)
  }
  for (; i < into.length; i++) into[i] = (into[i] ?? 0) + (from[i] ?? 0)
}

/** Turns the sum of `size` ranks into what was asked for. The division is IEEE's: equal bytes on every machine. */
export function finish(op: ReduceOp, values: Numbers, size: number): void {
  if (op === 'mean') for (let i = 0; i < values.length; i++) values[i] = (values[i] ?? 0) / size
}

/** @throws GridError 'unsupported' for a mean of integers, which would round */
export function requireReducible(op: ReduceOp, values: Numbers): void {
  if (op === 'mean' && !(values instanceof Float32Array))
    throw new GridError('unsupported', 'expected floats for a mean, got integers; take their sum and divide it')
}

/** @throws GridError 'usage' */
export function requireLength(name: string, values: Movable, length: number): void {
  if (values.length !== length)
    throw new GridError('usage', `expected ${length} numbers in \`${name}\`, got ${values.length}`)
}

/** The bytes of an array, not copied. */
export function bytesOf(values: Movable): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
}

/** The array in some bytes; copied only where they do not lie on a whole number's place. */
export function numbersIn(kind: 'f32' | 'i32' | 'u8', bytes: Uint8Array): Movable {
  if (kind === 'u8') return bytes
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice()
  return kind === 'f32'
    ? new Float32Array(buffer, byteOffset, byteLength / 4)
    : new Int32Array(buffer, byteOffset, byteLength / 4)
}

/** Numbers as they are. */
export function plainCodec(values: Movable): Codec {
  const kind = kindOf(values)
  const width = values.BYTES_PER_ELEMENT
  return {
    name: kind,
    lossless: true,
    bytes: (count) => width * count,
    encode: bytesOf,
    decode: (bytes, count) => numbersIn(kind, requireBytes(bytes, width * count)),
  }
}

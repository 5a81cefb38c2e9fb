// Expressions of WebAssembly: a typed value is the code that leaves it on the stack. The numbers are those of the
// specification's binary format. Knows no kernel.

import { unsigned } from './binary.ts'

export type ValueType = 'i32' | 'f32' | 'v128'

export interface WasmValue<T extends ValueType = ValueType> {
  readonly type: T
  readonly code: readonly number[]
  /** of an i32 that is known when the module is written */
  readonly constant?: number
}

export type I32 = WasmValue<'i32'>
export type F32 = WasmValue<'f32'>
/** four f32, or four i32 */
export type V128 = WasmValue<'v128'>
/** A number stands for a constant. */
export type Int = I32 | number

const SIMD = 0xfd
/** log2 of the bytes that an address is a multiple of: a hint, and that of a float is always true */
const ALIGNMENT = 2

/** LEB128 of a signed number, in two's complement. */
function signed(value: number): number[] {
  const bytes: number[] = []
  let rest = value
  for (;;) {
    const low = rest & 0x7f
    rest >>= 7
    const isLast = (rest === 0 && (low & 0x40) === 0) || (rest === -1 && (low & 0x40) !== 0)
    bytes.push(isLast ? low : low | 0x80)
    if (isLast) return bytes
  }
}

function floatBytes(value: number): number[] {
  return [...new Uint8Array(Float32Array.of(value).buffer)]
}

export function value<T extends ValueType>(type: T, ...parts: (readonly number[] | number)[]): WasmValue<T> {
  return { type, code: parts.flat() }
}

export function int(of: Int): I32 {
  return typeof of === 'number' ? { type: 'i32', code: [0x41, ...signed(of | 0)], constant: of | 0 } : of
}

export function float(of: number): F32 {
  return value('f32', 0x43, floatBytes(of))
}

type Fold = (a: number, b: number) => number

/** Operations of constants are done here: shapes leave no arithmetic in the code. */
function intOperation(op: number, fold: Fold, neutral?: number): (a: Int, b: Int) => I32 {
  return (left, right) => {
    const [a, b] = [int(left), int(right)]
    if (a.constant !== undefined && b.constant !== undefined) return int(fold(a.constant, b.constant))
    if (neutral !== undefined && b.constant === neutral) return a
    return value('i32', a.code, b.code, op)
  }
}

const truth = (holds: boolean) => Number(holds)

/** Of signed numbers, but for those marked as unsigned: sizes and addresses are never negative. */
export const i32 = {
  add: intOperation(0x6a, (a, b) => a + b, 0),
  sub: intOperation(0x6b, (a, b) => a - b, 0),
  mul: intOperation(0x6c, Math.imul, 1),
  divUnsigned: intOperation(0x6e, (a, b) => Math.floor(a / b), 1),
  remUnsigned: intOperation(0x70, (a, b) => a % b),
  and: intOperation(0x71, (a, b) => a & b),
  xor: intOperation(0x73, (a, b) => a ^ b),
  shiftRightUnsigned: intOperation(0x76, (a, b) => a >>> b, 0),
  equal: intOperation(0x46, (a, b) => truth(a === b)),
  notEqual: intOperation(0x47, (a, b) => truth(a !== b)),
  less: intOperation(0x48, (a, b) => truth(a < b)),
  lessUnsigned: intOperation(0x49, (a, b) => truth(a >>> 0 < b >>> 0)),
  greater: intOperation(0x4a, (a, b) => truth(a > b)),
  greaterEqual: intOperation(0x4e, (a, b) => truth(a >= b)),
  min: (a: Int, b: Int): I32 => select(int(a), int(b), i32.less(a, b)),
  max: (a: Int, b: Int): I32 => select(int(a), int(b), i32.less(b, a)),
  load: (address: Int, offset = 0): I32 => value('i32', int(address).code, 0x28, ALIGNMENT, unsigned(offset)),
  /** 0, step, 2 · step … ≥ n */
  roundUp: (n: Int, step: number): I32 => i32.mul(i32.divUnsigned(i32.add(n, step - 1), step), step),
}

/** `holds` is not 0: a, else b. Both are computed. */
export function select<T extends ValueType>(a: WasmValue<T>, b: WasmValue<T>, holds: I32): WasmValue<T> {
  if (holds.constant !== undefined) return holds.constant === 0 ? b : a
  const op = a.type === 'v128' ? [0x1c, 1, 0x7b] : [0x1b]
  return value(a.type, a.code, b.code, holds.code, op)
}

const floatBinary = (op: number) => (a: F32, b: F32) => value('f32', a.code, b.code, op)
const floatComparison = (op: number) => (a: F32, b: F32) => value('i32', a.code, b.code, op)

export const f32 = {
  add: floatBinary(0x92),
  sub: floatBinary(0x93),
  mul: floatBinary(0x94),
  div: floatBinary(0x95),
  max: floatBinary(0x97),
  sqrt: (a: F32) => value('f32', a.code, 0x91),
  greater: floatComparison(0x5e),
  equal: floatComparison(0x5b),
  ofInt: (a: Int) => value('f32', int(a).code, 0xb2),
  load: (address: Int, offset = 0): F32 => value('f32', int(address).code, 0x2a, ALIGNMENT, unsigned(offset)),
}

const vector = (op: number, ...operands: (readonly number[])[]): V128 => value('v128', ...operands, SIMD, unsigned(op))
const unary = (op: number) => (a: V128) => vector(op, a.code)
const binary = (op: number) => (a: V128, b: V128) => vector(op, a.code, b.code)
const shift = (op: number) => (a: V128, bits: number) => vector(op, a.code, int(bits).code)
const memory =
  (op: number) =>
  (address: Int, offset = 0) =>
    value('v128', int(address).code, SIMD, unsigned(op), ALIGNMENT, unsigned(offset))

/** Four numbers at once. What begins with `int` takes them as i32. */
export const v128 = {
  load: memory(0x00),
  /** one float in all four places */
  loadSplat: memory(0x09),
  /** one float, and two, in the first places; zeros behind */
  loadOne: memory(0x5c),
  loadTwo: memory(0x5d),
  /** four whole numbers of sixteen bits, without a sign */
  loadHalves: memory(0x04),
  constant: (...of: readonly number[]): V128 =>
    value(
      'v128',
      SIMD,
      0x0c,
      [0, 1, 2, 3].flatMap((i) => floatBytes(of[i] ?? of[0] ?? 0)),
    ),
  intConstant: (...of: readonly number[]): V128 =>
    value('v128', SIMD, 0x0c, [...new Uint8Array(Int32Array.from([0, 1, 2, 3], (i) => of[i] ?? of[0] ?? 0).buffer)]),
  splat: (a: F32) => vector(0x13, a.code),
  intSplat: (a: Int) => vector(0x11, int(a).code),
  /** lanes 0 … 3 of a and 4 … 7 of b */
  shuffle: (a: V128, b: V128, ...lanes: readonly number[]): V128 =>
    value(
      'v128',
      a.code,
      b.code,
      SIMD,
      0x0d,
      lanes.flatMap((lane) => [0, 1, 2, 3].map((byte) => 4 * lane + byte)),
    ),
  lane: (a: V128, lane: number): F32 => value('f32', a.code, SIMD, 0x1f, lane),
  intLane: (a: V128, lane: number): I32 => value('i32', a.code, SIMD, 0x1b, lane),
  add: binary(0xe4),
  sub: binary(0xe5),
  mul: binary(0xe6),
  div: binary(0xe7),
  min: binary(0xe8),
  max: binary(0xe9),
  sqrt: unary(0xe3),
  abs: unary(0xe0),
  neg: unary(0xe1),
  nearest: unary(0x6a),
  less: binary(0x43),
  greater: binary(0x44),
  lessEqual: binary(0x45),
  equal: binary(0x41),
  notEqual: binary(0x42),
  and: binary(0x4e),
  andNot: binary(0x4f),
  or: binary(0x50),
  xor: binary(0x51),
  /** bits of a where the mask has ones, of b elsewhere */
  choose: (mask: V128, a: V128, b: V128) => vector(0x52, a.code, b.code, mask.code),
  intAdd: binary(0xae),
  intSub: binary(0xb1),
  intMul: binary(0xb5),
  intShiftLeft: shift(0xab),
  intShiftRight: shift(0xad),
  intShiftRightSigned: shift(0xac),
  intEqual: binary(0x37),
  intLessUnsigned: binary(0x3a),
  /** whole numbers that are floats, as i32; far too large ones become the largest */
  toInt: unary(0xf8),
  fromInt: unary(0xfa),
  /** a · b + c, rounded once or twice as the machine does: WebAssembly's relaxed SIMD */
  relaxedMultiplyAdd: (a: V128, b: V128, c: V128) => vector(0x105, a.code, b.code, c.code),
}

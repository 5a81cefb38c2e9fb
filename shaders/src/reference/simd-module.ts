// A WebAssembly module written from formulas: each kernel walks over blocks of f32 vectors, four elements at a time.
// Its arithmetic is exact IEEE f32 (+, −, ×, ÷, √), as the WebAssembly specification demands, so it gives the bits of
// the plain TypeScript beside it. Independent of optimizers; the numbers are from the specification's binary format.

import { list, MODULE_HEADER, section, SECTION, text, unsigned } from '../wasm/binary.ts'

/**
 * Elements of one block. Seven vectors of it fit a second-level cache of 512 KiB, and a copy of it is worth its call.
 */
export const BLOCK = 4096
const BLOCK_BYTES = BLOCK * Float32Array.BYTES_PER_ELEMENT
/** Vectors of a block that the memory has room for; a kernel reads and writes them in place. */
export const SLOTS = 4
const PAGE_BYTES = 65_536
export const VECTOR_BYTES = 16

/** Code that leaves one vector of four f32, or two f64, on WebAssembly's stack. */
type Expression = readonly number[]
type Statement = readonly number[]

export interface Kernel {
  readonly name: string
  readonly scalars: number
  /** statements, in order; those that keep a value for later use it by `local(n)`, n below `locals` */
  readonly body: readonly Statement[]
  /** ahead of the first and behind the last four elements of a block: what goes from block to block */
  readonly before?: readonly Statement[]
  readonly after?: readonly Statement[]
  readonly locals: number
}

const SIMD = 0xfd
const OP = { add: 0xe4, subtract: 0xe5, multiply: 0xe6, divide: 0xe7, root: 0xe3, or: 0x50 } as const
const OP64 = { add: 0xf0, multiply: 0xf2, ofLowHalf: 0x5f } as const
const SHUFFLE = 0x0d
/** bytes 8 … 15 of a vector, twice */
const HIGH_HALF = Array.from({ length: VECTOR_BYTES }, (_, i) => 8 + (i % 8))
const TYPE = { i32: 0x7f, f32: 0x7d, v128: 0x7b, function: 0x60 } as const
const I32 = { constant: 0x41, add: 0x6a, lessUnsigned: 0x49 } as const
const CONTROL = { loop: 0x03, end: 0x0b, branchIf: 0x0d, noResult: 0x40 } as const
const LOCAL = { get: 0x20, set: 0x21 } as const
const MEMORY = { load: [SIMD, 0x00], store: [SIMD, 0x0b], alignment: 4 } as const
const SPLAT = [SIMD, 0x13] as const

/**
 * Locals of every kernel: its parameters (bytes to walk, then the scalars), the position, the scalars as vectors, its
 * own.
 */
const BYTES = 0

export interface Formula {
  load(slot: number): Expression
  scalar(index: number): Expression
  local(index: number): Expression
  add(a: Expression, b: Expression): Expression
  subtract(a: Expression, b: Expression): Expression
  multiply(a: Expression, b: Expression): Expression
  divide(a: Expression, b: Expression): Expression
  root(a: Expression): Expression
  or(a: Expression, b: Expression): Expression
  /** of two f64 */
  add64(a: Expression, b: Expression): Expression
  multiply64(a: Expression, b: Expression): Expression
  /** the first two f32 as f64; the last two */
  low64(a: Expression): Expression
  high64(a: Expression): Expression
  /** keeps a value for `local(index)` */
  keep(index: number, value: Expression): Statement
  /** writes a value to a slot of the block */
  store(slot: number, value: Expression): Statement
  /** vector `index` from the beginning of a slot, wherever the walk is */
  first(slot: number, index: number): Expression
  storeFirst(slot: number, index: number, value: Expression): Statement
}

/** The vocabulary of a kernel with so many scalars. */
export function formula(scalars: number): Formula {
  const position = scalars + 1
  const vector = position + 1
  const own = vector + scalars
  const get = (index: number) => [LOCAL.get, ...unsigned(index)]
  const binary = (op: number) => (a: Expression, b: Expression) => [...a, ...b, SIMD, ...unsigned(op)]
  const place = (slot: number, vectors = 0) => [
    MEMORY.alignment,
    ...unsigned(slot * BLOCK_BYTES + vectors * VECTOR_BYTES),
  ]
  const beginning = [I32.constant, 0]
  return {
    load: (slot) => [...get(position), ...MEMORY.load, ...place(slot)],
    scalar: (index) => get(vector + index),
    local: (index) => get(own + index),
    add: binary(OP.add),
    subtract: binary(OP.subtract),
    multiply: binary(OP.multiply),
    divide: binary(OP.divide),
    root: (a) => [...a, SIMD, ...unsigned(OP.root)],
    or: binary(OP.or),
    add64: binary(OP64.add),
    multiply64: binary(OP64.multiply),
    low64: (a) => [...a, SIMD, ...unsigned(OP64.ofLowHalf)],
    high64: (a) => [...a, ...a, SIMD, SHUFFLE, ...HIGH_HALF, SIMD, ...unsigned(OP64.ofLowHalf)],
    keep: (index, value) => [...value, LOCAL.set, ...unsigned(own + index)],
    store: (slot, value) => [...get(position), ...value, ...MEMORY.store, ...place(slot)],
    first: (slot, index) => [...beginning, ...MEMORY.load, ...place(slot, index)],
    storeFirst: (slot, index, value) => [...beginning, ...value, ...MEMORY.store, ...place(slot, index)],
  }
}

/** The module: memory `blocks`, and each kernel as a function of the number of bytes to walk and its scalars. */
export function simdModule(kernels: readonly Kernel[]): Uint8Array<ArrayBuffer> {
  const pages = Math.ceil((SLOTS * BLOCK_BYTES) / PAGE_BYTES)
  const signature = ({ scalars }: Kernel) => [
    TYPE.function,
    ...list([[TYPE.i32], ...Array.from({ length: scalars }, () => [TYPE.f32])]),
    ...list([]),
  ]
  const exported = (name: string, kind: number, index: number) => [...text(name), kind, ...unsigned(index)]
  return Uint8Array.from([
    ...MODULE_HEADER,
    ...section(SECTION.types, kernels.map(signature)),
    ...section(
      SECTION.functions,
      kernels.map((_, i) => unsigned(i)),
    ),
    ...section(SECTION.memory, [[0x00, ...unsigned(pages)]]),
    ...section(SECTION.exports, [
      exported('blocks', 0x02, 0),
      ...kernels.map(({ name }, i) => exported(name, 0x00, i)),
    ]),
    ...section(SECTION.code, kernels.map(code)),
  ])
}

function code({ scalars, locals, body, before = [], after = [] }: Kernel): number[] {
  const position = scalars + 1
  const declared = list([
    [1, TYPE.i32],
    [...unsigned(scalars + locals), TYPE.v128],
  ])
  const splats = Array.from({ length: scalars }, (_, i) => [
    LOCAL.get,
    ...unsigned(1 + i),
    ...SPLAT,
    LOCAL.set,
    ...unsigned(position + 1 + i),
  ]).flat()
  const advance = [
    LOCAL.get,
    ...unsigned(position),
    I32.constant,
    VECTOR_BYTES,
    I32.add,
    LOCAL.set,
    ...unsigned(position),
  ]
  const more = [LOCAL.get, ...unsigned(position), LOCAL.get, BYTES, I32.lessUnsigned, CONTROL.branchIf, 0]
  const loop = [CONTROL.loop, CONTROL.noResult, ...body.flat(), ...advance, ...more, CONTROL.end]
  const whole = [...declared, ...splats, ...before.flat(), ...loop, ...after.flat(), CONTROL.end]
  return [...unsigned(whole.length), ...whole]
}

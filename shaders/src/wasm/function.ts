// One function of a module, written statement by statement: locals, loops, branches, stores. Knows no kernel.
import { unsigned } from './binary.ts'
import {
  f32,
  type F32,
  i32,
  int,
  type Int,
  type I32,
  type V128,
  type WasmValue,
  value,
  type ValueType,
} from './values.ts'

export const TYPE_CODES: Readonly<Record<ValueType, number>> = { i32: 0x7f, f32: 0x7d, v128: 0x7b }

const CONTROL = { block: 0x02, loop: 0x03, if: 0x04, else: 0x05, end: 0x0b, branch: 0x0c, branchIf: 0x0d, none: 0x40 }
const SET = 0x21
const GET = 0x20
const SIMD = 0xfd
const ALIGNMENT = 2

export interface Local<T extends ValueType> extends WasmValue<T> {
  readonly index: number
}

export class FunctionWriter {
  readonly parameters: readonly Local<'i32'>[]
  readonly #locals: ValueType[] = []
  readonly #code: number[] = []

  /** `parameters`: all are i32 */
  constructor(parameters: number) {
    this.parameters = Array.from({ length: parameters }, (_, index) => local('i32', index))
  }

  /** Its body in the binary format. */
  get body(): number[] {
    const declared = this.#locals.flatMap((type) => [1, TYPE_CODES[type]])
    const whole = [...unsigned(this.#locals.length), ...declared]
    return [...unsigned(whole.length + this.#code.length + 1), ...whole, ...this.#code, CONTROL.end]
  }

  /** A variable that begins with `initial`. Variables of a loop's body are set anew in each turn. */
  variable<T extends ValueType>(initial: WasmValue<T>): Local<T> {
    const made = this.declare(initial.type)
    this.set(made, initial)
    return made
  }

  int(initial: Int): Local<'i32'> {
    return this.variable(int(initial))
  }

  /** A variable that holds whatever it held before. */
  declare<T extends ValueType>(type: T): Local<T> {
    this.#locals.push(type)
    return local(type, this.parameters.length + this.#locals.length - 1)
  }

  set<T extends ValueType>(to: Local<T>, from: WasmValue<T>): void {
    this.#write(from.code, SET, unsigned(to.index))
  }

  increase(to: Local<'i32'>, by: Int): void {
    this.set(to, i32.add(to, by))
  }

  /** body(i) for i = start, start + step … below end */
  for(start: Int, end: Int, step: Int, body: (i: I32) => void): void {
    const [first, last] = [int(start), int(end)]
    if (first.constant !== undefined && last.constant !== undefined && first.constant >= last.constant) return
    const i = this.int(start)
    const isConstant = last.constant !== undefined
    const bound = isConstant ? last : this.int(end)
    const runs = first.constant !== undefined && isConstant
    const turn = (): void => {
      this.#write(CONTROL.loop, CONTROL.none)
      body(i)
      this.increase(i, step)
      this.#write(i32.less(i, bound).code, CONTROL.branchIf, 0, CONTROL.end)
    }
    if (runs) turn()
    else this.if(i32.less(i, bound), turn)
  }

  if(holds: I32, then: () => void, otherwise?: () => void): void {
    if (holds.constant !== undefined) {
      if (holds.constant !== 0) then()
      else otherwise?.()
      return
    }
    this.#write(holds.code, CONTROL.if, CONTROL.none)
    then()
    if (otherwise) {
      this.#write(CONTROL.else)
      otherwise()
    }
    this.#write(CONTROL.end)
  }

  store(address: Int, what: WasmValue, offset = 0): void {
    const op = { i32: [0x36], f32: [0x38], v128: [SIMD, 0x0b] }[what.type]
    this.#write(int(address).code, what.code, op, ALIGNMENT, unsigned(offset))
  }

  /** One lane of a vector, and the first two. */
  storeLane(address: Int, what: V128, lane: number, offset = 0): void {
    this.#write(int(address).code, what.code, SIMD, 0x5a, ALIGNMENT, unsigned(offset), lane)
  }

  storeTwo(address: Int, what: V128, offset = 0): void {
    this.#write(int(address).code, what.code, SIMD, 0x5b, ALIGNMENT, unsigned(offset), 0)
  }

  /** `bytes` of zeros */
  clear(address: Int, bytes: Int): void {
    this.#write(int(address).code, int(0).code, int(bytes).code, 0xfc, 0x0b, 0)
  }

  copy(to: Int, from: Int, bytes: Int): void {
    this.#write(int(to).code, int(from).code, int(bytes).code, 0xfc, 0x0a, 0, 0)
  }

  addFloat(address: Int, what: F32, offset = 0): void {
    this.store(address, f32.add(f32.load(address, offset), what), offset)
  }

  #write(...parts: (readonly number[] | number)[]): void {
    for (const part of parts)
      if (typeof part === 'number') this.#code.push(part)
      else for (const byte of part) this.#code.push(byte)
  }
}

function local<T extends ValueType>(type: T, index: number): Local<T> {
  return { ...value(type, GET, unsigned(index)), index }
}

// Passes as one WebAssembly module: a function for each that differs from all others.
import { FunctionWriter } from './function.ts'
import { type MemoryShape, moduleBytes } from './module.ts'
import { PieceWriter, type WasmOptions, type WasmPass } from './pass.ts'
import { v128 } from './values.ts'

export interface WasmCode {
  readonly bytes: Uint8Array<ArrayBuffer>
  /** pass → number of its function; exported under that */
  readonly functions: ReadonlyMap<WasmPass, number>
}

export function wasmCode(passes: readonly WasmPass[], memory: MemoryShape, options: WasmOptions): WasmCode {
  const numbers = new Map<string, number>()
  const writers: PieceWriter[] = []
  const functions = new Map<WasmPass, number>()
  for (const pass of passes) {
    const key = JSON.stringify([pass.entryPoint, pass.constants, pass.bindings])
    const number = numbers.get(key) ?? writers.length
    if (number === writers.length) {
      const writer = new PieceWriter(pass.bindings, options)
      pass.write(writer)
      writers.push(writer)
      numbers.set(key, number)
    }
    functions.set(pass, number)
  }
  return { bytes: moduleBytes(writers, memory), functions }
}

/** Whether a · b + c may be rounded once here: WebAssembly's relaxed SIMD, which some engines lack. */
export function hasRelaxedSimd(): boolean {
  const writer = new FunctionWriter(0)
  const one = v128.constant(1)
  writer.store(0, v128.relaxedMultiplyAdd(one, one, one))
  return WebAssembly.validate(moduleBytes([writer], { pages: 1, shared: false }))
}

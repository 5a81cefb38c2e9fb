// One pass on WebAssembly: a function that computes one piece of it. Pieces follow from shapes alone, never from the
// number of threads, so that neither the order of sums nor any bit depends on who computes which piece.
import type { KernelDims, KernelName, KernelOperands } from '../kernels.ts'
import type { Binding, Constant, NamedPass, Recipe } from '../recipe.ts'
import { FunctionWriter, type Local } from './function.ts'
import { i32, type I32, type Int } from './values.ts'

export const FLOAT_BYTES = 4

export interface WasmPass extends NamedPass {
  /** independent parts of the work for so many samples */
  pieces(samples: number): number
  /** memory that a thread needs for one piece */
  readonly scratchBytes: number
  /** writes the code of one piece */
  write(writer: PieceWriter): void
}

export type WasmRecipe = Recipe<WasmPass>

/** A row of the table (specs.ts). */
export type WasmKernel<K extends KernelName> = (
  dims: KernelDims<K>,
  capacity: number,
  operands: KernelOperands<K, unknown>,
) => WasmRecipe

export interface WasmOptions {
  /** a · b + c may be rounded once: WebAssembly's relaxed SIMD */
  readonly relaxed: boolean
}

/** The function of a pass: (piece, samples, adds, memory of the thread, table of addresses). */
export class PieceWriter extends FunctionWriter {
  readonly piece: I32
  readonly samples: I32
  /** 0 in runs that begin a sum of gradients */
  readonly adds: I32
  /** memory of the thread's own */
  readonly scratch: I32
  readonly options: WasmOptions
  readonly #bindings: ReadonlyMap<string, Binding>
  readonly #addresses: ReadonlyMap<string, Local<'i32'>>

  constructor(bindings: readonly Binding[], options: WasmOptions) {
    super(5)
    const [piece, samples, adds, scratch, table] = this.parameters
    if (!piece || !samples || !adds || !scratch || !table) throw new Error('internal: a function without parameters')
    this.piece = piece
    this.samples = samples
    this.adds = adds
    this.scratch = scratch
    this.options = options
    this.#bindings = new Map(bindings.map((binding) => [binding.name, binding]))
    const bound = bindings.filter((binding) => binding.kind !== 'optional' || binding.present)
    this.#addresses = new Map(bound.map(({ name }, i) => [name, this.int(i32.load(table, i * FLOAT_BYTES))]))
  }

  has(name: string): boolean {
    return this.#addresses.has(name)
  }

  /** Address of element `index` of a binding. */
  at(name: string, index: Int = 0): I32 {
    const address = this.#addresses.get(name)
    if (!address) throw new Error(`internal: the pass binds no ${name}`)
    return i32.add(address, i32.mul(index, FLOAT_BYTES))
  }

  /** 1 where results join what the binding holds already. */
  joins(name: string): I32 | 1 {
    const binding = this.#bindings.get(name)
    return binding?.kind === 'matrix' && binding.begins ? this.adds : 1
  }
}

export interface PassParts {
  readonly constants: Readonly<Record<string, Constant>>
  readonly bindings: readonly Binding[]
  readonly scratchBytes?: number
  pieces(samples: number): number
  write(writer: PieceWriter): void
}

export function wasmPass(entryPoint: string, { scratchBytes = 0, ...parts }: PassParts): WasmPass {
  return { file: 'wasm', entryPoint, scratchBytes, ...parts }
}

/** A kernel of one pass without scratch buffers. */
export function onePass(entryPoint: string, parts: PassParts): WasmRecipe {
  return { scratch: {}, passes: [wasmPass(entryPoint, parts)] }
}

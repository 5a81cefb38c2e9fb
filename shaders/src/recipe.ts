// How a kernel runs on a GPU: its passes over operands and scratch, for a capacity of samples.
// Shapes and capacity are compile-time constants of the shader. The actual number of samples is not, so that
// neither a shader nor a pipeline depends on it.

import type { KernelFile } from './kernel-urls.ts'
import type { Activation } from './kernels.ts'

/** 'update' reads and writes; 'write' may leave elements as they are. */
export type BindingAccess = 'read' | 'write' | 'update'

interface NamedBinding {
  /** in WGSL */
  readonly name: string
  /** the kernel's operand or a scratch buffer of the recipe */
  readonly operand: string
  readonly access: BindingAccess
  /** its floats are stored as f16; the plan's decision, not the recipe's */
  readonly half?: boolean
  /** results are multiplied by the loss scale of the run; the plan's decision too */
  readonly scaled?: boolean
}

/**
 * Rows of f32. The shader sees blocks of four rows and four columns (`x_rows`, `x_block`, `x_put_block`, `x_add_block`,
 * see wgsl.ts). It works alike whether or not rows are multiples of four. Where they are not, columns past the end read
 * as 0.
 */
export interface MatrixBinding extends NamedBinding {
  readonly kind: 'matrix'
  readonly rows: number
  readonly columns: number
  /** what `x_put` does to a result before it stores it */
  readonly finish?: Epilogue
  /** `x_add` comes to every element once in a run */
  readonly covers?: boolean
  /**
   * `x_add` writes in runs that begin a sum, instead of adding to zeros; the plan's decision, and only where it covers
   */
  readonly begins?: boolean
}

/**
 * The epilogue of a result: the sum with the binding `residual`, which goes into the binding `preactivation` too, then
 * the activation. For a gradient it is the derivative of an activation, computed from the binding `activated`. These
 * bindings are matrices of the result's sizes.
 */
export interface Epilogue {
  readonly residual?: boolean
  readonly preactivation?: boolean
  readonly activation?: Activation | undefined
  readonly derivative?: Activation
}

/** A plain array of `length` elements, counted singly; 'vec4f' and 'vec4u' group them by four. */
export interface ArrayBinding extends NamedBinding {
  readonly kind: 'array'
  readonly element: 'f32' | 'vec4f' | 'i32' | 'vec4u'
  readonly length: number
}

/** A vector that a layer may lack: `bias_at(i)` then is 0 and `dbias_add(i, v)` does nothing. */
export interface OptionalBinding extends NamedBinding {
  readonly kind: 'optional'
  readonly length: number
  readonly present: boolean
}

export type Binding = MatrixBinding | ArrayBinding | OptionalBinding

/** A whole number, or a rounded one made by `real`. */
export type Constant = number | { readonly f32: number }

/** A pass as a plan knows it, whatever runs it. Passes of equal names, constants and bindings do the same. */
export interface NamedPass {
  readonly file: string
  readonly entryPoint: string
  readonly constants: Readonly<Record<string, Constant>>
  readonly bindings: readonly Binding[]
}

/** One dispatch. */
export interface Pass extends NamedPass {
  readonly file: KernelFile
  /** files whose functions `file` calls */
  readonly uses?: readonly KernelFile[]
  /** become `const NAME`, whole numbers as u32 */
  readonly constants: Readonly<Record<string, Constant>>
  /** invocations in one workgroup */
  readonly workgroup: number
  /**
   * what one invocation reads one after the other, at capacity: quads, or numbers that lie apart; absent: its share of
   * what the pass reads (serial-loads.ts)
   */
  readonly loads?: number
  /** the shader exchanges values within subgroups: WebGPU's feature of that name */
  readonly subgroups?: boolean
  /** the shader multiplies matrices of f16 on matrix units, subgroup by subgroup (AdapterTraits.matrixUnits) */
  readonly matrixUnits?: boolean
  /** invocations needed for this many samples; the shader returns early in those beyond */
  threads(samples: number): number
}

export interface Recipe<P extends NamedPass = Pass> {
  /** buffers that live only while the kernel runs: name → elements of f32 */
  readonly scratch: Readonly<Record<string, number>>
  readonly passes: readonly P[]
}

/** Invocations per workgroup of kernels that keep many registers: enough workgroups even for small layers. */
export const TILE_WORKGROUP = 32
/** … and of kernels that stream. */
export const STREAM_WORKGROUP = 64
/**
 * Invocations that keep every core of a software adapter busy with streaming: 16 workgroups. Sums are split into so
 * many.
 */
export const BUSY_STREAM = 16 * STREAM_WORKGROUP
/** Edge of the square of results that one invocation of a matrix kernel keeps in registers. */
export const TILE = 8

export function matrix(name: string, access: BindingAccess, rows: number, columns: number): MatrixBinding {
  return { kind: 'matrix', name, operand: name, access, rows, columns }
}

/** The files whose text the shader of a pass is taken from. */
export function filesOf({ file, uses = [] }: Pass): readonly KernelFile[] {
  return [file, ...uses]
}

export function array(
  name: string,
  access: BindingAccess,
  length: number,
  element: ArrayBinding['element'] = 'f32',
): ArrayBinding {
  return { kind: 'array', name, operand: name, access, length, element }
}

/** The same binding, of an operand that has another name outside the shader. */
export function ofOperand(operand: string, binding: Binding): Binding {
  return { ...binding, operand }
}

export function optional(name: string, access: BindingAccess, length: number, operand: unknown): OptionalBinding {
  return { kind: 'optional', name, operand: name, access, length, present: operand !== undefined }
}

export function real(value: number): Constant {
  return { f32: Math.fround(value) }
}

export function tiles(size: number): number {
  return Math.ceil(size / TILE)
}

export function roundUp(size: number, multiple: number): number {
  return Math.ceil(size / multiple) * multiple
}

// Variants: several ways to run one kernel, of which a plan takes the one that suits its adapter and sizes.
// Pure; which variant is fastest on an adapter is measured elsewhere.

import type { KernelDims, KernelName, KernelOperands } from './kernels.ts'
import type { Recipe } from './recipe.ts'

/**
 * A family is made for a kind of adapter. 'register' keeps results in registers and never synchronises: 5 times as fast
 * on software adapters. 'subgroup' does the same with operands that a subgroup loads once for all invocations: still
 * faster on software adapters with subgroups. 'shared' keeps tiles of its operands in workgroup memory: fastest on
 * GPUs. 'matrix' does that too and multiplies on the GPU's matrix units, with factors in f16.
 */
export type KernelFamily = 'register' | 'subgroup' | 'shared' | 'matrix'

/** What the choice of a variant may depend on, of an adapter. */
export interface AdapterTraits {
  /** no GPU stands behind it */
  readonly software: boolean
  readonly features: ReadonlySet<string>
  readonly maxComputeWorkgroupStorageSize: number
  readonly maxComputeInvocationsPerWorkgroup: number
  /** an invocation with 8 × 8 results spills: GPUs of laptops and phones */
  readonly fewRegisters?: boolean
  /** invocations of every subgroup; absent where there are none or their number varies */
  readonly subgroupSize?: number
  /**
   * subgroups of 32 multiply matrices of 16 × 16 f16 and sum up in f32, and the plan's precision is f16; absent: they do
   * not, or the plan keeps all digits of f32
   */
  readonly matrixUnits?: boolean
}

/** Every adapter can do this: the defaults of WebGPU. */
export const PLAIN_TRAITS: AdapterTraits = {
  software: true,
  features: new Set(),
  maxComputeWorkgroupStorageSize: 16_384,
  maxComputeInvocationsPerWorkgroup: 256,
}

export type MakeRecipe<K extends KernelName> = (
  dims: KernelDims<K>,
  capacity: number,
  operands: KernelOperands<K, unknown>,
) => Recipe

export interface Variant<K extends KernelName> {
  readonly family: KernelFamily
  /** what sets it apart within the kernel, for tables and caches: `8×8`, `64×64 split` */
  readonly name: string
  readonly recipe: MakeRecipe<K>
  /** whether the adapter can run it at all, of these sizes; absent: every adapter can */
  fits?(traits: AdapterTraits, dims: KernelDims<K>): boolean
  /** whether it is worth a try at these sizes; absent: always */
  suits?(dims: KernelDims<K>, capacity: number, traits: AdapterTraits): boolean
  /** what orders those of its family that suit, cheapest first; absent: the order of the table */
  cost?(dims: KernelDims<K>, capacity: number, traits: AdapterTraits): number
  /** share of the arithmetic that makes results, at full capacity; absent: nearly all */
  useful?(dims: KernelDims<K>, capacity: number): number
}

/** A kernel's row in the table: one recipe, or variants with those first that are better where they suit. */
export type KernelEntry<K extends KernelName> = MakeRecipe<K> | readonly Variant<K>[]

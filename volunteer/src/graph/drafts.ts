// The passes of a graph before memory is assigned: each binding still names a tensor or a scratch buffer.

import { boundBindings, type Binding, type KernelCall, type KernelName, type NamedPass } from '@starling-grid/shaders'
import type { Graph, GraphPart } from './build.ts'
import type { Choice, VariantSelector } from './choice.ts'
import type { Tensor } from './tensor.ts'

/** Where a pass comes from. */
export interface PassOrigin {
  readonly kernel: KernelName
  /** `register 8×8` */
  readonly variant: string
  /** why this variant */
  readonly why: string
  /** share of its arithmetic that makes results */
  readonly useful: number
  /** the call, by its place: `backward.3` */
  readonly call: string
}

export interface DraftPass<P extends NamedPass = NamedPass> {
  readonly part: GraphPart
  readonly origin: PassOrigin
  readonly pass: P
  /** in the order of the bound bindings; a scratch buffer is a string */
  readonly operands: readonly (Tensor | string)[]
}

/**
 * In this order for lifetimes: what evaluation makes is overwritten by forward, and needed by the loss at the latest.
 */
export const PARTS = ['evaluation', 'logits', 'forward', 'loss', 'backward'] as const

export function draftPasses<P extends NamedPass>(
  graph: Graph,
  choose: VariantSelector<P>,
  capacity: number,
): DraftPass<P>[] {
  const parts = PARTS.filter((part) => part !== 'evaluation' || graph.evaluation !== graph.forward)
  return parts.flatMap((part) =>
    (graph[part] ?? []).flatMap((call, index) =>
      draftsOf({ part, call, callName: `${part}.${index}` }, choose(call, capacity), capacity),
    ),
  )
}

interface PlacedCall {
  readonly part: GraphPart
  readonly call: KernelCall<Tensor>
  readonly callName: string
}

function draftsOf<P extends NamedPass>(
  { part, call, callName }: PlacedCall,
  { candidate, why }: Choice<P>,
  capacity: number,
): DraftPass<P>[] {
  const recipe = candidate.recipe(capacity)
  const { family, name, useful } = candidate
  const origin = { kernel: call.kernel, variant: `${family} ${name}`, why, useful, call: callName }
  const operands = new Map<string, Tensor>(Object.entries(call.operands))
  const resolve = ({ operand }: Binding): Tensor | string => {
    const tensor = operands.get(operand)
    if (tensor) return tensor
    if (Object.hasOwn(recipe.scratch, operand)) return `${callName}.${operand}`
    throw new Error(`internal: ${call.kernel} binds \`${operand}\`, which is neither operand nor scratch`)
  }
  return recipe.passes.map((pass) => ({ part, origin, pass, operands: boundBindings(pass).map(resolve) }))
}

/**
 * Passes that make the same scratch from the same tensors run once, and the scratch is kept until its last reader. So
 * the backward of a convolution finds its input as forward prepared it. Sound because tensors are written once per run.
 */
export function shareScratch<P extends NamedPass>(drafts: readonly DraftPass<P>[]): DraftPass<P>[] {
  const firstOf = new Map<string, DraftPass>()
  const sameAs = new Map<string, string>()
  return drafts.flatMap(({ operands, ...rest }) => {
    const draft = {
      ...rest,
      operands: operands.map((operand) => (typeof operand === 'string' ? (sameAs.get(operand) ?? operand) : operand)),
    }
    const key = draft.part === 'evaluation' || draft.part === 'logits' ? undefined : derivation(draft)
    const first = key === undefined ? undefined : firstOf.get(key)
    if (key === undefined || !first) {
      if (key !== undefined) firstOf.set(key, draft)
      return [draft]
    }
    for (const [i, scratch] of writtenScratch(draft).entries()) sameAs.set(scratch, writtenScratch(first)[i] ?? scratch)
    return []
  })
}

/** Equal for passes that write equal scratch; undefined where a pass writes a tensor. */
function derivation(draft: DraftPass): string | undefined {
  const { pass, operands } = draft
  const read = operands
    .filter((_, i) => !isWritten(pass, i))
    .map((operand) => (typeof operand === 'string' ? operand : operand.storage))
  if (writtenScratch(draft).length + read.length !== operands.length) return undefined
  return JSON.stringify([pass.file, pass.entryPoint, pass.constants, pass.bindings, read])
}

function writtenScratch({ pass, operands }: DraftPass): string[] {
  return operands.flatMap((operand, i) => (isWritten(pass, i) && typeof operand === 'string' ? [operand] : []))
}

function isWritten(pass: NamedPass, binding: number): boolean {
  return boundBindings(pass)[binding]?.access !== 'read'
}

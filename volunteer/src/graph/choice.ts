// Which variant of a kernel a plan uses, and why. Pure: what was measured on an adapter comes in as a table.

import {
  candidatesFor,
  type AdapterTraits,
  type Candidate,
  type KernelCall,
  type KernelFamily,
  type NamedPass,
  type Pass,
} from '@starling-grid/shaders'

export interface Choice<P extends NamedPass = Pass> {
  readonly candidate: Candidate<P>
  /** for people: `first guess for software adapters`, `measured: 0.41 ms, the next 0.52 ms` */
  readonly why: string
}

/** Asked once per call when a plan is made; the answer holds for the life of the plan. */
export type VariantSelector<P extends NamedPass = Pass> = (call: KernelCall<unknown>, capacity: number) => Choice<P>

/** The first that suits: variants are listed in the order in which they are usually fastest. */
export function defaultVariant(traits: AdapterTraits): VariantSelector {
  return (call, capacity) => {
    const candidates = candidatesFor(call, capacity, traits)
    const [candidate] = candidates
    if (!candidate) throw new Error(`internal: no variant of ${call.kernel} runs here`)
    const isOnly = candidates.filter(({ suits }) => suits).length === 1
    return { candidate, why: isOnly ? 'the only one that suits' : `first guess for ${kindOf(candidate, traits)}` }
  }
}

function kindOf({ family }: Candidate, { software }: AdapterTraits): string {
  if (software) return 'software adapters'
  return family === 'matrix' ? 'GPUs with matrix units' : 'GPUs'
}

/** Tests and measurements run a certain variant where a kernel has it: `8×4`, `shared`. */
export function forceVariant(
  wanted: { readonly family?: KernelFamily; readonly name?: string },
  traits: AdapterTraits,
): VariantSelector {
  const otherwise = defaultVariant(traits)
  return (call, capacity) => {
    const candidate = candidatesFor(call, capacity, traits).find(
      ({ family, name }) => family === (wanted.family ?? family) && name === (wanted.name ?? name),
    )
    return candidate ? { candidate, why: 'asked for' } : otherwise(call, capacity)
  }
}

/** Equal for calls that every measurement treats alike. */
export function shapeKey({ kernel, dims, operands }: KernelCall<unknown>, capacity: number): string {
  const present = Object.entries(operands).flatMap(([name, operand]) => (operand === undefined ? [] : [name]))
  return JSON.stringify([kernel, capacity, Object.entries(dims).sort(([a], [b]) => (a < b ? -1 : 1)), present.sort()])
}

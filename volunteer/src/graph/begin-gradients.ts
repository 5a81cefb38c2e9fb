// The first kernel that reaches a large gradient in a run writes it, instead of adding to cleared zeros. On a software
// adapter clearing and reading zeros takes a tenth of a step whose model is mostly matrices.

import { boundBindings, type Binding, type NamedPass } from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import type { DraftPass } from './drafts.ts'
import type { FlatViews } from './flat-views.ts'
import type { Tensor } from './tensor.ts'

/** Floats: clearing fewer costs less than a command of its own for what lies before and behind. */
const LEAST_FLOATS = 65_536

/** Later kernels that come to the same gradient, of a weight that two layers share, add to it as always. */
export function beginGradients<P extends NamedPass>(drafts: readonly DraftPass<P>[]): DraftPass<P>[] {
  const begun = new Set<number>()
  return drafts.map((draft) => {
    const bound = new Map(boundBindings(draft.pass).map((binding, i) => [binding, draft.operands[i]]))
    const bindings = draft.pass.bindings.map((binding): Binding => {
      const operand = bound.get(binding)
      if (!isGradient(operand) || begun.has(operand.offset)) return binding
      begun.add(operand.offset)
      return binding.kind === 'matrix' && binding.covers && operand.size >= LEAST_FLOATS
        ? { ...binding, begins: true }
        : binding
    })
    return { ...draft, pass: { ...draft.pass, bindings } }
  })
}

/** The parts of the device's gradient that no pass begins; neighbours together. */
export function clearedRanges(drafts: readonly DraftPass[], { views }: FlatViews): FloatRange[] {
  const begun = new Set(
    drafts.flatMap(({ pass, operands }) =>
      boundBindings(pass).flatMap((binding, i) => {
        const operand = operands[i]
        return binding.kind === 'matrix' && binding.begins && isGradient(operand) ? [operand.offset] : []
      }),
    ),
  )
  const ranges: { start: number; end: number }[] = []
  let neighbour: { end: number } | undefined
  for (const { offset, deviceOffset, length } of views.values()) {
    const range = { start: deviceOffset, end: deviceOffset + length }
    if (begun.has(offset)) neighbour = undefined
    else if (neighbour) neighbour.end = range.end
    else ranges.push((neighbour = range))
  }
  return ranges
}

function isGradient(operand: Tensor | string | undefined): operand is Tensor {
  return typeof operand === 'object' && operand.role === 'parameterGradient'
}

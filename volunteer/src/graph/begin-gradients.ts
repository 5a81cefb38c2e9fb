// The first kernel that reaches a large gradient in a run writes it, instead of adding to cleared zeros. On a software
// adapter clearing and reading zeros takes a tenth of a step whose model is mostly matrices.

import { boundBindings, type Binding, type NamedPass } from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import type { DraftPass } from './drafts.ts'
import { overlap } from './early-ranges.ts'
import type { FlatViews } from './flat-views.ts'
import type { Tensor } from './tensor.ts'

/** Floats: clearing fewer costs less than a command of its own for what lies before and behind. */
const LEAST_FLOATS = 65_536

/** Later kernels that come to the same gradient, of a weight that two layers share, add to it as always. */
export function beginGradients<P extends NamedPass>(drafts: readonly DraftPass<P>[]): DraftPass<P>[] {
  const begun: FloatRange[] = []
  return drafts.map((draft) => {
    const bound = new Map(boundBindings(draft.pass).map((binding, i) => [binding, draft.operands[i]]))
    const bindings = draft.pass.bindings.map((binding): Binding => {
      const operand = bound.get(binding)
      if (!isGradient(operand)) return binding
      const range = rangeOf(operand)
      if (begun.some((other) => overlap(other, range))) return binding
      begun.push(range)
      return binding.kind === 'matrix' && binding.covers && operand.size >= LEAST_FLOATS
        ? { ...binding, begins: true }
        : binding
    })
    return { ...draft, pass: { ...draft.pass, bindings } }
  })
}

/** The parts of the device's gradient that no pass begins; neighbours together. */
export function clearedRanges(drafts: readonly DraftPass[], { views }: FlatViews): FloatRange[] {
  const begun = drafts
    .flatMap(({ pass, operands }) =>
      boundBindings(pass).flatMap((binding, i) => {
        const operand = operands[i]
        return binding.kind === 'matrix' && binding.begins && isGradient(operand) ? [rangeOf(operand)] : []
      }),
    )
    .sort((a, b) => a.start - b.start)
  const ranges: { start: number; end: number }[] = []
  let neighbour: { start: number; end: number } | undefined
  for (const view of views.values()) {
    const left = beside(begun, { start: view.offset, end: view.offset + view.length })
    if (left.length === 0) neighbour = undefined
    for (const { start, end } of left) {
      const moved = view.deviceOffset - view.offset
      const isNext = neighbour !== undefined && start === view.offset
      if (neighbour && isNext) neighbour.end = end + moved
      else ranges.push((neighbour = { start: start + moved, end: end + moved }))
    }
    if (left.at(-1)?.end !== view.offset + view.length) neighbour = undefined
  }
  return ranges
}

/** What is left of a range beside others, which are in order. */
function beside(others: readonly FloatRange[], { start, end }: FloatRange): FloatRange[] {
  const left: FloatRange[] = []
  let at = start
  for (const other of others) {
    if (other.end <= at || other.start >= end) continue
    if (other.start > at) left.push({ start: at, end: other.start })
    at = other.end
  }
  return at < end ? [...left, { start: at, end }] : left
}

function rangeOf({ offset, size }: Tensor): FloatRange {
  return { start: offset, end: offset + size }
}

function isGradient(operand: Tensor | string | undefined): operand is Tensor {
  return typeof operand === 'object' && operand.role === 'parameterGradient'
}

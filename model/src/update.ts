// One step of a run: from the reduced sums to the next version. Members and the parameter server share it. Exact f32,
// so the result is equal on every machine.

import {
  applyUpdate,
  asMean,
  meanAt,
  type MeanGradient,
  meanOfSum,
  type DecayGroup,
  type OptimizerSpec,
  type OptimizerState,
} from '@starling-grid/shaders'
import type { ParameterEntry, ParameterLayout } from './param-layout.ts'
import type { VersionContent, VersionForm } from './version-state.ts'

/** What a step does with Σ gradients, besides the optimizer's own rule. */
export type UpdateRule = Omit<VersionForm, 'spec'>

/** Of local rounds: SGD with Nesterov's momentum on the mean difference (DiLoCo). */
export function outerOptimizer({
  outerLr,
  outerMomentum,
}: {
  readonly outerLr: number
  readonly outerMomentum: number
}): OptimizerSpec {
  return { type: 'sgd', lr: outerLr, momentum: outerMomentum, nesterov: true }
}

/**
 * 'round': the mean is the mean difference that members made in their inner steps, and the outer optimizer follows it.
 */
export type UpdateKind = 'step' | 'round'

/**
 * Σ → mean over the targets; the norm of what the optimizer will see is at most `clipNorm`. Reads the sum once and
 * writes nothing.
 */
export function meanOfStep(
  { layout }: Pick<UpdateRule, 'layout'>,
  sum: Float32Array,
  { targets, clipNorm }: { readonly targets: number; readonly clipNorm: number | undefined },
): MeanGradient {
  return meanOfSum(sum, targets, { clipNorm, counted: layout.trained })
}

/**
 * The version after `from`, out of place: `from` stays whole until the new one is committed. `to` may be `from`.
 * @example nextVersion({ layout, optimizer }, held, meanOfStep(rule, sum, { targets, clipNorm }), spare)
 */
// oxlint-disable-next-line max-params -- two versions side by side read best in the order of the formula
export function nextVersion(
  rule: UpdateRule,
  from: VersionContent,
  gradient: Float32Array | MeanGradient,
  to: VersionContent,
  kind: UpdateKind = 'step',
): void {
  const { layout } = rule
  const { optimizer, state, nextState } = optimizerOf(rule, from, to, kind)
  const mean = gradient instanceof Float32Array ? asMean(gradient) : gradient
  const trained = (vector: Float32Array) => vector.subarray(0, layout.trained)
  applyUpdate(
    optimizer,
    state,
    trained(from.parameters),
    { ...mean, sum: trained(mean.sum) },
    trained(to.parameters),
    nextState,
    decayGroups(layout, optimizer),
  )
  for (const entry of layout.entries)
    if (entry.kind === 'statistic')
      follow(entry, { from: from.parameters, mean: { ...mean, factor: 1 }, to: to.parameters, kind })
}

/** The optimizer that takes this step; the state of the other goes over as it is. */
function optimizerOf({ optimizer, outer }: UpdateRule, from: VersionContent, to: VersionContent, kind: UpdateKind) {
  if (kind === 'step') {
    if (from.outerState && to.outerState) copyState(from.outerState, to.outerState)
    return { optimizer, state: from.optimizerState, nextState: to.optimizerState }
  }
  if (!outer || !from.outerState || !to.outerState)
    throw new Error('internal: a round in a job without an outer optimizer')
  copyState(from.optimizerState, to.optimizerState)
  return { optimizer: outer, state: from.outerState, nextState: to.outerState }
}

function copyState(from: OptimizerState, to: OptimizerState): void {
  if (from === to) return
  to.step = from.step
  to.scalars.set(from.scalars)
  for (const [i, slot] of to.slots.entries()) slot.set(from.slots[i] ?? slot)
}

interface Followed {
  readonly from: Float32Array
  readonly mean: MeanGradient
  readonly to: Float32Array
  readonly kind: UpdateKind
}

// step: statistic ← statistic + momentum · (measured − statistic); round: statistic ← statistic − mean difference
function follow({ offset, length, momentum = 0 }: ParameterEntry, { from, mean, to, kind }: Followed): void {
  const share = Math.fround(momentum)
  for (let i = offset; i < offset + length; i++) {
    const old = from[i] ?? 0
    const value = meanAt(mean, i)
    to[i] =
      kind === 'round' ? Math.fround(old - value) : Math.fround(old + Math.fround(share * Math.fround(value - old)))
  }
}

/** Neighbours of one kind together: most models have a handful of groups, not one for each tensor. */
function decayGroups({ trained, entries }: ParameterLayout, { decay = 'all' }: OptimizerSpec): DecayGroup[] {
  if (decay === 'all') return [{ start: 0, end: trained, decayed: true }]
  const groups: DecayGroup[] = []
  for (const { kind, offset, length } of entries) {
    if (kind === 'statistic') continue
    const decayed = kind === 'trained'
    const last = groups.at(-1)
    if (last?.decayed === decayed) groups[groups.length - 1] = { ...last, end: offset + length }
    else groups.push({ start: offset, end: offset + length, decayed })
  }
  return groups
}

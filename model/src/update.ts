// One step of a run: from the sums that were reduced to the next version. Members and the parameter server share it.
// Exact f32 and so equal on every machine (DESIGN §4.1.7).

import { applyUpdate, clipGlobalNorm, meanGradient, type DecayGroup, type OptimizerSpec } from '@starling-grid/shaders'
import type { ParameterEntry, ParameterLayout } from './param-layout.ts'
import type { VersionContent } from './version-state.ts'

/** What a step does with Σ gradients, besides the optimizer's own rule. */
export interface UpdateRule {
  readonly layout: ParameterLayout
  readonly optimizer: OptimizerSpec
}

/** Σ → mean over the targets, in `mean`; the norm of what the optimizer will see is then at most `clipNorm`. Returns the norm before. */
export function meanOfStep({ layout }: Pick<UpdateRule, 'layout'>, sum: Float32Array, { targets, mean, clipNorm }: { readonly targets: number; readonly mean: Float32Array; readonly clipNorm: number | undefined }): number {
  meanGradient(sum, targets, mean)
  return clipGlobalNorm(mean.subarray(0, layout.trained), clipNorm ?? Number.POSITIVE_INFINITY)
}

/**
 * The version after `from`, out of place: `from` stays whole until the new one is committed. `to` may be `from`.
 * @example nextVersion({ layout, optimizer }, held, mean, spare)
 */
export function nextVersion({ layout, optimizer }: UpdateRule, from: VersionContent, mean: Float32Array, to: VersionContent): void {
  const trained = (vector: Float32Array) => vector.subarray(0, layout.trained)
  applyUpdate(
    optimizer, from.optimizerState, trained(from.parameters), trained(mean), trained(to.parameters), to.optimizerState, decayGroups(layout, optimizer),
  )
  for (const entry of layout.entries) if (entry.kind === 'statistic') follow(entry, from.parameters, mean, to.parameters)
}

// statistic ← statistic + momentum · (measured − statistic)
function follow({ offset, length, momentum = 0 }: ParameterEntry, from: Float32Array, measured: Float32Array, to: Float32Array): void {
  const share = Math.fround(momentum)
  for (let i = offset; i < offset + length; i++) {
    const old = from[i] ?? 0
    to[i] = Math.fround(old + Math.fround(share * Math.fround((measured[i] ?? 0) - old)))
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

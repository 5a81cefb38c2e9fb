// How much an invocation reads one thing after the other. On a GPU each load is a trip to memory, which thousands of
// other invocations hide, or nothing does.

import type { Binding, Pass } from './recipe.ts'
import { boundBindings } from './wgsl.ts'

/** Loads of one invocation of a pass that runs `samples`: quads, or numbers that lie apart. */
export function serialLoads(pass: Pass, samples: number): number {
  if (pass.loads !== undefined) return pass.loads
  const read = boundBindings(pass).filter(({ access }) => access !== 'write')
  return read.reduce((sum, binding) => sum + loadsOf(binding), 0) / pass.threads(samples)
}

function loadsOf(binding: Binding): number {
  if (binding.kind === 'matrix') return binding.rows * Math.ceil(binding.columns / 4)
  const isGrouped = binding.kind === 'array' && (binding.element === 'vec4f' || binding.element === 'vec4u')
  return isGrouped ? Math.ceil(binding.length / 4) : binding.length
}

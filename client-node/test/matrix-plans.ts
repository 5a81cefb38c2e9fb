// Plans for matrix units, for tests.
import { candidatesFor, PLAIN_TRAITS, type Pass } from '@starling-grid/shaders'
import { forceVariant, MATRIX_FEATURE, type VariantSelector } from '@starling-grid/volunteer/testing'

/** A GPU of NVIDIA's, as Dawn describes it. */
export const WITH_UNITS = {
  ...PLAIN_TRAITS,
  software: false,
  features: new Set(['shader-f16', 'subgroups', MATRIX_FEATURE]),
  maxComputeWorkgroupStorageSize: 49_152,
  matrixUnits: true,
}
/** The tile's variant of each product; of what is no product, the guess for other GPUs. */
export function byTile(name: string, change: (pass: Pass) => Pass): VariantSelector {
  const guess = forceVariant({}, { ...WITH_UNITS, matrixUnits: false })
  return (other, capacity) => {
    const candidate = candidatesFor(other, capacity, WITH_UNITS).find(
      (all) => all.family === 'matrix' && [name, `${name} split`].includes(all.name),
    )
    if (candidate === undefined) return guess(other, capacity)
    const recipe = (samples: number) => {
      const { scratch, passes } = candidate.recipe(samples)
      return { scratch, passes: passes.map(change) }
    }
    return { candidate: { ...candidate, recipe }, why: 'asked for' }
  }
}

// Who sums up a row: one invocation, where cores are few and barriers dear, or a workgroup, where lanes are many.

import type { KernelName } from '../kernels.ts'
import type { Pass } from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'

export interface RowWalk {
  /** of a row, one after the other */
  readonly steps: number
  /** what each step reads, over all walks along the row: quads, or numbers that lie apart */
  readonly reads: number
  /** invocations in a workgroup where each has a row of its own */
  readonly workgroup: number
  /** how many there are, where that does not follow the samples */
  readonly rows?: number
}

export interface RowSharing {
  readonly sharing: Required<Pick<Pass, 'uses' | 'workgroup' | 'loads'>>
  /** invocations for so many rows */
  invocations(rows: number): number
}

export type ShareRows = (walk: RowWalk) => RowSharing

/** One invocation a row: own-rows.wgsl. */
export const ownRows: ShareRows = ({ steps, reads, workgroup }) => ({
  sharing: { uses: ['own-rows'], workgroup, loads: steps * reads },
  invocations: (rows) => rows,
})

/** Whole subgroups on every GPU but AMD's older ones; every adapter can run the most. */
const LEAST_SHARERS = 32
const MOST_SHARERS = 128
/** Steps of an invocation before more of them share the row: adding up takes that long, too. */
const STEPS_EACH = 2
/** Invocations that fill a GPU of the middle class with sums. */
export const BUSY_SUMS = 32_768
/** A row that is over sooner is not worth a workgroup. */
const SHORTEST_ROW = 8
/** With so many rows a GPU is busy by an invocation each. */
const MANY_ROWS = 32_768

/** A workgroup a row: shared-rows.wgsl; where rows are short or many, an invocation. */
export const sharedRows: ShareRows = (walk) => {
  const { steps, reads, rows = 0 } = walk
  if (steps < SHORTEST_ROW || rows >= MANY_ROWS) return ownRows(walk)
  let workgroup = LEAST_SHARERS
  while (workgroup < MOST_SHARERS && workgroup * STEPS_EACH < steps) workgroup *= 2
  return {
    sharing: { uses: ['shared-rows'], workgroup, loads: Math.ceil(steps / workgroup) * reads },
    invocations: (count) => count * workgroup,
  }
}

/** The recipe for GPUs of a kernel with rows of so many steps. */
export function rowVariants<K extends KernelName>(
  recipe: MakeRecipe<K>,
  stepsOf: (dims: Parameters<MakeRecipe<K>>[0], capacity: number) => number,
): readonly Variant<K>[] {
  return [
    {
      family: 'shared',
      name: 'row by workgroup',
      recipe,
      suits: (dims, capacity, { software }) => !software && stepsOf(dims, capacity) >= SHORTEST_ROW,
    },
  ]
}

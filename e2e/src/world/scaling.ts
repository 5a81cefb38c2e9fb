// What the record of a step must say in a job whose batch follows the ring: Goyal's rule, written a second time.
import type { StepRecord } from '@starling-grid/protocol'

export interface ScalingTerms {
  /** steps in which the rate rises */
  readonly warmup: number
  /** blocks and rate of one member */
  readonly batchBlocks: number
  readonly lr: number
}

interface MadeStep {
  /** undefined: of a job with a batch of its own */
  readonly terms: ScalingTerms | undefined
  /** members of the generation that made it; undefined: a restored journal does not know */
  readonly size: number | undefined
  /** factor of the rate in the step before */
  readonly before: number
  /** off-ring members took part: their blocks come beside those of the batch */
  readonly isDamped: boolean
}

/** Undefined: nothing is wrong. A block that is tried alone is a batch of one, with one member's rate. */
export function wrongScaling({ scaling, blocks }: StepRecord, made: MadeStep): string | undefined {
  const { terms, size, before, isDamped } = made
  if (terms === undefined) return scaling === undefined ? undefined : 'says a batch, and the job has its own'
  if (scaling === undefined) return 'says nothing of its batch'
  const { batch, scale, lr } = scaling
  if (blocks.length > batch && !isDamped) return `has ${blocks.length} blocks in a batch of ${batch}`
  const isAlone = batch === 1 && blocks.length === 1
  if (size !== undefined && batch !== size * terms.batchBlocks && !isAlone)
    return `has a batch of ${batch}, made by ${size} members of ${terms.batchBlocks} blocks each`
  const times = Math.max(1, batch / terms.batchBlocks)
  const expected = Math.min(times, terms.warmup === 0 ? times : before + times / terms.warmup)
  if (scale !== expected || lr !== scale * terms.lr)
    return `has the rate ${lr}, ${scale} times the job's: not ${expected}`
  return undefined
}

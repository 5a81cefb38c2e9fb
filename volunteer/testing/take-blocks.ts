// A member at its assignment, as the production loop drives it (generation/step.ts), without a computation.
import type { BlockId } from '@starling-grid/protocol'
import { nextBlocks, type StepId } from '../src/member/assignment.ts'
import type { MemberCore } from '../src/member/member-state.ts'
import { react } from '../src/member/member.ts'

export interface BlocksWanted extends StepId {
  readonly most: number
  /** ms that a block took so far */
  readonly blockMs: number
}

/** Begins the next blocks, or seals the assignment when it is complete. */
export function takeBlocks(
  core: MemberCore,
  { most, blockMs, ...at }: BlocksWanted,
): readonly BlockId[] | 'wait' | 'complete' | 'over' {
  const next = nextBlocks(core, at, most)
  if (next === 'complete') react(core, { type: 'seal', ...at, blockMs })
  else if (next !== 'over') react(core, { type: 'begin', ...at, blocks: next === 'wait' ? [] : next, blockMs })
  return next
}

// What is submitted at once. Pure.

import type { GroupShare } from '@starling-grid/shaders'
import { MAX_WORK, type PlannedPass } from '../graph/plan.ts'

/** Whole passes, or a share of the workgroups of one that has more work than a submit may. */
export interface SubmitPiece {
  readonly passes: readonly PlannedPass[]
  readonly share?: GroupShare
}

/** Of one pass: MAX_PASS_WORK in submits of 12 ms on a weak GPU, and after four losses of the device. */
const MOST_SHARES = 4096

/** Passes in their order, in pieces of at most `mostWork`; one piece at least. */
export function inSubmits(passes: readonly PlannedPass[], mostWork: number = MAX_WORK): SubmitPiece[] {
  const pieces: SubmitPiece[] = []
  let together: PlannedPass[] = []
  let work = 0
  const close = () => {
    if (together.length > 0) pieces.push({ passes: together })
    together = []
    work = 0
  }
  for (const pass of passes) {
    if (work + pass.work > mostWork) close()
    if (pass.work > mostWork) pieces.push(...sharesOf(pass, Math.min(MOST_SHARES, Math.ceil(pass.work / mostWork))))
    else {
      together.push(pass)
      work += pass.work
    }
  }
  close()
  return pieces.length > 0 ? pieces : [{ passes: [] }]
}

function sharesOf(pass: PlannedPass, count: number): SubmitPiece[] {
  return Array.from({ length: count }, (_, index) => ({ passes: [pass], share: { index, count } }))
}

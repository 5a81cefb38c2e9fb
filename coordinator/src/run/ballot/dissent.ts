// A checkpoint that two members agreed on, and others say another state of its version (R15). Two liars may have been
// quicker than all honest members. Its true state decides, or who were more where it cannot be derived.
import type { MemberId, Sha256 } from '@starling-grid/protocol'
import { forgetSaid, saidOf } from '../history/digests.ts'
import type { Checkpoint } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { differed, namesOf } from './agreement.ts'
import { doubtersOf, isDerived, trueState } from './derived-state.ts'

/** After the row of checkpoints, which notes what members say. */
export const dissent = {
  on: { 'state-derived': considerDissent },
  hear: { 'version-digest': considerDissent },
  tick: considerDissent,
} satisfies Aspect

function considerDissent(transition: Transition): void {
  const { state } = transition
  if (state.mode === 'async') return
  for (const checkpoint of [...state.checkpoints]) {
    const doubters = doubtersOf(state, checkpoint)
    if (doubters.length > 0 && checkpoint.witnessed) settle(transition, checkpoint, doubters)
  }
}

function settle(transition: Transition, checkpoint: Checkpoint, doubters: readonly MemberId[]): void {
  const { state } = transition
  const { version, blob, agreeing } = checkpoint
  const truth = trueState(transition, { version, said: saidOf(state, version) })
  if (truth.type === 'pending') return
  if (truth.type === 'known' && truth.digest !== blob) return takeBack(transition, checkpoint, truth.digest)
  forgetSaid(state, version, doubters)
  if (truth.type === 'unknown' && doubters.length >= agreeing) return
  leaveOut(transition, checkpoint, doubters)
}

/** It and those after it are no checkpoints any more; members fetch the state from those that hold the true one. */
function takeBack(transition: Transition, checkpoint: Checkpoint, truth: Sha256): void {
  const { state } = transition
  const wrong = [...saidOf(state, checkpoint.version)].flatMap(([id, digest]) => (digest === truth ? [] : [id]))
  const isFalse = ({ version, blob }: Checkpoint): boolean =>
    version.v >= checkpoint.version.v && blob !== undefined && !isDerived(state, version, blob)
  for (const { version } of state.checkpoints.filter(isFalse))
    transition.journal({ type: 'checkpoint-damaged', version })
  transition.note('checkpoint', `the checkpoint of version ${checkpoint.version.v} is not its state: it is taken back`)
  forgetSaid(state, checkpoint.version, wrong)
  leaveOut(transition, checkpoint, wrong)
}

function leaveOut(transition: Transition, { version }: Checkpoint, members: readonly MemberId[]): void {
  const what = `state of version ${version.v}`
  transition.note('refusal', `${namesOf(transition.state, members)} held another ${what} than others`)
  differed(transition, members, { what, leaveOut: true })
  transition.enqueue({ type: 'ballot', reason: `${members.length} member(s) held another ${what}`, trouble: false })
}

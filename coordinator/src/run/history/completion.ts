// The end of a run: its last version is durable, and all members are told.
import { newestCheckpoint } from '../journal-replay.ts'
import { currentEpoch, isIdle, whyOver } from '../queue/scheduler.ts'
import type { Aspect, Transition } from '../transition.ts'
import { askForHead } from './checkpoints.ts'

export const completion = { on: { 'end-with-epoch': endWithEpoch }, holds: finish } satisfies Aspect

/** The run is over when its last version is durable. */
function finish(transition: Transition): string | undefined {
  const { state } = transition
  const { head } = state.chain
  const reason = isIdle(state) ? whyOver(state) : undefined
  if (reason === undefined) return undefined
  askForHead(transition)
  if (newestCheckpoint(state).version.id !== head.id) return `trained; writing version ${head.v}`
  transition.journal({ type: 'finished', reason })
  state.phase = { type: 'finished' }
  transition.note('run', reason)
  transition.broadcast(state.members.keys(), { type: 'finished', version: head, reason })
  transition.effect({ type: 'ended' })
  return reason
}

/** What is begun is finished: R13 keeps plans inside an epoch, so no block is left half way and none is lost. */
function endWithEpoch(transition: Transition): void {
  const { state } = transition
  const epochs = currentEpoch(state) + 1
  if (state.finished !== undefined || epochs >= state.config.epochs) return
  transition.journal({ type: 'epochs', epochs })
  transition.note('run', `the owner ends the run with epoch ${epochs}`)
  transition.enqueue({ type: 'advance' })
}

// A kept version that cannot be read any more. Older ones serve in its place, down to version 0. A member that holds
// the damaged version, or a later one, still brings it back (R6).
import { newestCheckpoint } from '../journal-replay.ts'
import type { DamagedCheckpoint } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

export const damagedCheckpoint = { on: { 'checkpoint-damaged': onCheckpointDamaged } } satisfies Aspect

function onCheckpointDamaged(transition: Transition, { version, problem, neededBy }: DamagedCheckpoint): void {
  const { state } = transition
  const isKnown = [...state.checkpoints, ...state.kept].some(
    (one) => one.version.id === version.id && one.blob !== undefined,
  )
  if (!isKnown) return
  transition.journal({ type: 'checkpoint-damaged', version })
  const next = newestCheckpoint(state).version.v
  transition.note(
    'checkpoint',
    `checkpoint of version ${version.v} cannot be read, version ${next} is the newest that can: ${problem}`,
  )
  // Members that need the version as their target say so by an ABORT, and the ballot that follows finds another.
  if (neededBy === 'server' && state.phase.type === 'async')
    transition.enqueue({ type: 'ballot', reason: `the checkpoint of version ${version.v} is damaged`, trouble: true })
}

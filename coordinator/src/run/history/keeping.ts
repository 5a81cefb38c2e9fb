// Training rests at a version that the job keeps until its checkpoint is durable. Otherwise it could outrun the
// uploads.
import { newestCheckpoint } from '../journal-replay.ts'
import { isIdle, trainingIsOver } from '../queue/scheduler.ts'
import type { RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { askForHead } from './checkpoints.ts'
import { isAmongBest, isMarkDue, toMark } from './keep.ts'

export const keeping = {
  holds: restForKept,
  plan: { window: ({ config, chain }, window) => Math.min(window, toMark(config.keep, chain.head.v)) },
} satisfies Aspect

/** In async mode no lease is granted until those that are out came back; a ring plans no step beyond. */
function restForKept(transition: Transition): string | undefined {
  const { state } = transition
  const why = trainingIsOver(state) ? undefined : whyKept(state)
  if (why === undefined) return undefined
  if (isIdle(state)) {
    askForHead(transition)
    return `writing version ${state.chain.head.v}, which is kept ${why}`
  }
  if (state.phase.type !== 'async') return undefined
  return `parameter server: ${state.leases.size} leased blocks come back before a version is kept ${why}`
}

function whyKept(state: RunState): string | undefined {
  const { config, chain, evaluations } = state
  const { head } = chain
  const newest = newestCheckpoint(state).version
  if (newest.id === head.id) return undefined
  if (isMarkDue(config.keep, head.v, newest.v)) return `as one of every ${config.keep.every} steps`
  const isBest = isAmongBest(head.id, { keep: config.keep, metric: config.stop.metric, evaluations })
  return isBest ? 'as one of the best' : undefined
}

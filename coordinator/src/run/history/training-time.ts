// How long a run has trained: time in which members are at work. While it waits for volunteers or is paused the time
// stands still. Kept in rows of the journal for jobs with a limit of minutes.
import { own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

/** ms between rows: as much may count twice after a crash. */
const ROW_MS = 10_000
/** ms between two ticks that count at most: a process that was suspended did not train. */
const LONGEST_TICK_MS = 5000
const MINUTE_MS = 60_000

declare module '../state.ts' {
  interface Slices {
    trainingTime: { at: number | undefined; unwritten: number }
  }
}

export const trainingTime = {
  initial: () => ({ trainingTime: { at: undefined, unwritten: 0 } }),
  tick: count,
  plan: { window: windowOf },
} satisfies Aspect

function count(transition: Transition): void {
  const { state, now } = transition
  const { minutes } = state.config.stop
  const time = own(state, 'trainingTime')
  const since = time.at
  time.at = now
  if (minutes === undefined || since === undefined || !isTraining(state)) return
  if (state.trainedMs >= minutes * MINUTE_MS) return
  time.unwritten += Math.min(Math.max(0, now - since), LONGEST_TICK_MS)
  const isOver = trainedMs(state) >= minutes * MINUTE_MS
  if (time.unwritten < ROW_MS && !isOver) return
  transition.journal({ type: 'trained', ms: trainedMs(state) })
  time.unwritten = 0
  if (isOver) transition.enqueue({ type: 'advance' })
}

function isTraining({ phase, paused, parking, members, finished }: RunState): boolean {
  if (paused || parking.asked !== undefined || finished !== undefined) return false
  return phase.type === 'ring' || (phase.type === 'async' && members.size > 0)
}

/** ms up to the last tick. */
export function trainedMs(state: RunState): number {
  return state.trainedMs + state.trainingTime.unwritten
}

/** No step is planned that would begin after the end. */
function windowOf(state: RunState, window: number): number {
  const { minutes } = state.config.stop
  const stepMs = state.health.pace?.recordMs
  if (minutes === undefined || stepMs === undefined) return window
  const left = Math.max(0, minutes * MINUTE_MS - trainedMs(state))
  return Math.min(window, Math.ceil(left / Math.max(stepMs, 1)))
}

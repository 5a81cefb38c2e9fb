// The clock of a coordinator. Beside what every host's clock has it tells the time of decisions.
import { type CancelTimer, type Clock, systemClock } from '@starling-grid/protocol'

export interface CoordinatorClock extends Clock {
  /**
   * Time for decisions: ms since the epoch, and yet never backwards while the process lives, whatever happens to the
   * wall clock. It stops while this process stands still (a long computation, a frozen machine). Time in which the
   * coordinator could receive nothing counts neither as silence of a member nor towards a deadline.
   */
  awake(): number
  /** A timer for which the process does not stay. */
  looseTimer(ms: number, act: () => void): CancelTimer
}

/** ms between two turns of the event loop that count at most; far below SILENCE_MS, far above an ordinary turn */
const LONGEST_TURN_MS = 1000
const BEAT_MS = 100

/** The clock of this process. */
export const processClock: CoordinatorClock = {
  ...systemClock,
  awake: () => Math.round(passed()),
  looseTimer(ms, act) {
    const timer = setTimeout(act, ms)
    timer.unref()
    return () => clearTimeout(timer)
  },
  // A timer of 0 ms takes one: several of them would be most of the time of a small step.
  sleep: (ms, signal) => (ms === 0 ? new Promise((resolve) => setImmediate(resolve)) : systemClock.sleep(ms, signal)),
}

let awake = performance.timeOrigin + performance.now()
let turnedAt = performance.now()
let beat: ReturnType<typeof setInterval> | undefined

function passed(): number {
  // From the first question on; a process that asks for no time is not kept awake for it.
  if (beat === undefined) begin()
  return awake + Math.min(performance.now() - turnedAt, LONGEST_TURN_MS)
}

function begin(): void {
  turnedAt = performance.now()
  awake = performance.timeOrigin + turnedAt
  beat = setInterval(turn, BEAT_MS)
  beat.unref()
}

function turn(): void {
  awake = passed()
  turnedAt = performance.now()
}

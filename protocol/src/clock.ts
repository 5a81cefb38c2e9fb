// Time as a host gives it to shared code. The simulation gives another one, whose hours pass at once.

/** Ends a timer; a second call does nothing. */
export type CancelTimer = () => void

export interface Clock {
  /** ms since an arbitrary moment; never goes back, and may stand still while the machine sleeps */
  now(): number
  /** ms since the epoch, by the clock on the wall: it goes on while the machine sleeps, and may be set back */
  wallTime(): number
  /** Resolves after `ms`, or at once when the signal is raised. 0: in a later turn of the event loop. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
  /** Calls `act` once, after `ms`. */
  timer(ms: number, act: () => void): CancelTimer
  /** Calls `act` every `ms`. */
  every(ms: number, act: () => void): CancelTimer
}

/** The clock of this machine. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  sleep: (ms, signal) => sleepOn(systemClock, ms, signal),
  timer(ms, act) {
    const timer = setTimeout(act, ms)
    return () => clearTimeout(timer)
  },
  every(ms, act) {
    const timer = setInterval(act, ms)
    return () => clearInterval(timer)
  },
}

/** `sleep` for a clock that has timers. */
export function sleepOn(clock: Pick<Clock, 'timer'>, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      cancel()
      signal?.removeEventListener('abort', done)
      resolve()
    }
    const cancel = clock.timer(signal?.aborted === true ? 0 : ms, done)
    signal?.addEventListener('abort', done)
  })
}

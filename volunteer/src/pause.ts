// Waiting that a signal can end.

/** Resolves after `ms`, or at once when the signal is raised. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, signal.aborted ? 0 : ms)
    signal.addEventListener('abort', done)
  })
}

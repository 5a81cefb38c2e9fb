// What ends with a signal.

/** Calls `act` once when the signal is raised, at once if it was. Returns what takes that back. */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  if (signal.aborted) act()
  else signal.addEventListener('abort', act, { once: true })
  return () => signal.removeEventListener('abort', act)
}

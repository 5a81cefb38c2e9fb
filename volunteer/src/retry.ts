// Trying again what went to the network: exponential backoff with full jitter, so that thousands do not return at one
// moment.
import type { Clock } from '@starling-grid/protocol'

export interface Backoff {
  /** ms: the longest wait before the second try; it doubles with every further one */
  readonly firstMs: number
  /** ms: the longest wait of all */
  readonly mostMs: number
}

export interface Retrying {
  readonly backoff: Backoff
  readonly signal: AbortSignal
  readonly clock: Clock
  /** whether another try may succeed */
  worthIt(error: unknown): boolean
  /** ms after the first try in which another may begin; absent: until it succeeds or the signal is raised */
  readonly withinMs?: number
  onRetry?(error: unknown, waitMs: number): void
}

/** ms before the next try, drawn anew each time. `attempt`: tries that failed before this one. */
export function backoffMs(attempt: number, { firstMs, mostMs }: Backoff): number {
  return Math.random() * Math.min(mostMs, firstMs * 2 ** attempt)
}

/** @throws the last error, when it is not worth another try, the time is over, or the signal is raised */
export async function persistently<T>(
  task: () => Promise<T>,
  { backoff, signal, clock, worthIt, withinMs = Number.POSITIVE_INFINITY, onRetry }: Retrying,
): Promise<T> {
  const deadline = clock.now() + withinMs
  for (let attempt = 0; ; attempt++) {
    try {
      return await task()
    } catch (error) {
      const waitMs = backoffMs(attempt, backoff)
      if (signal.aborted || clock.now() + waitMs > deadline || !worthIt(error)) throw error
      onRetry?.(error, waitMs)
      await clock.sleep(waitMs, signal)
      if (signal.aborted) throw error
    }
  }
}

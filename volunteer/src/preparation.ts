// Preparing for a job, one job at a time: a newer one cancels the older one, whose executor is released before the next
// begins. What fails on the way is tried again until it works, is fatal (fatal.ts), or the job is no longer wanted.
import { isGridError, type JobId, type JobTerms } from '@starling-grid/protocol'
import { endsWork } from './fatal.ts'
import { JobSession, type JobSessionParts } from './job-session.ts'
import { persistently } from './retry.ts'

/** ms: a device takes seconds to open, and a coordinator to start again */
const BACKOFF = { firstMs: 500, mostMs: 15_000 }

/** The wait before another try, for people. */
export type OnRetry = (error: unknown, waitMs: number) => void

export class Preparation {
  #newest: { readonly job: JobId; readonly cancel: AbortController } | undefined
  /** settles when nothing is under way: the next begins then */
  #idle: Promise<unknown> = Promise.resolve()

  /** the job that is being prepared */
  get job(): JobId | undefined {
    return this.#newest?.job
  }

  /** Undefined: another job came first, or cancel(). @throws what is fatal, or ends the work on this job */
  async begin(terms: JobTerms, parts: JobSessionParts, onRetry: OnRetry): Promise<JobSession | undefined> {
    this.cancel()
    const order = { job: terms.id, cancel: new AbortController() }
    this.#newest = order
    const { signal } = order.cancel
    const preparing = this.#idle.then(() => prepare(terms, parts, { signal, onRetry }))
    this.#idle = preparing.catch(() => undefined)
    try {
      const session = await preparing
      if (!signal.aborted) return session
      session?.stop()
      return undefined
    } finally {
      if (this.#newest === order) this.#newest = undefined
    }
  }

  cancel(): void {
    this.#newest?.cancel.abort()
    this.#newest = undefined
  }
}

async function prepare(
  terms: JobTerms,
  parts: JobSessionParts,
  { signal, onRetry }: { readonly signal: AbortSignal; readonly onRetry: OnRetry },
): Promise<JobSession | undefined> {
  if (signal.aborted) return undefined
  try {
    return await persistently(() => JobSession.prepare(terms, parts, signal), {
      backoff: BACKOFF,
      signal,
      clock: parts.host.clock,
      worthIt: (error) => !endsWork(error),
      onRetry,
    })
  } catch (error) {
    if (signal.aborted && isGridError(error)) return undefined
    throw error
  }
}

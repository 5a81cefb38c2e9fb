// Follows a version by the sums of the steps after it, in a thread of its own. Returns the resulting state, or whether
// the last step's gradient is that of its blocks. Bounded in time.
import { Worker } from 'node:worker_threads'
import type { JobTerms, Sha256, StepRecord, VersionRef } from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'

/** ms after which a recomputation is given up: its model is too large for this machine */
export const MOST_MS = 60_000

interface Steps {
  readonly terms: JobTerms
  readonly from: VersionRef
  /** the whole state of `from`; undefined: the seed makes it */
  readonly state: Uint8Array | undefined
  readonly records: readonly StepRecord[]
  /** Σ gradients of each record */
  readonly sums: readonly Float32Array[]
}

/** What state the records make. */
export interface FollowTask extends Steps {
  readonly type: 'follow'
}

/** Whether the last record's gradient is that of its blocks. Of low priority. */
export interface AuditTask extends Steps {
  readonly type: 'audit'
  /** the shards of the last record's blocks, by name */
  readonly shards: ReadonlyMap<Sha256, Uint8Array>
}

export interface Recomputed {
  /** ‖recomputed − committed‖ / ‖committed‖ of the last step's Σ gradients */
  readonly deviation?: number | undefined
  /** what is wrong with the last step; absent: nothing */
  readonly fault?: string | undefined
  /** why the last step's gradient cannot be computed again */
  readonly skipped?: string | undefined
}

export type RecomputeTask = FollowTask | AuditTask
export type RecomputeAnswer = Recomputed | { readonly digest: Sha256 } | { readonly error: string }

/** @throws Error when it took too long, or the thread failed */
export async function recompute(task: AuditTask, clock: CoordinatorClock): Promise<Recomputed> {
  const answer = await inThread(task, clock)
  return 'digest' in answer ? {} : answer
}

/** SHA-256 of the state. @throws Error when it took too long, or the thread failed */
export async function follow(task: FollowTask, clock: CoordinatorClock): Promise<Sha256> {
  const answer = await inThread(task, clock)
  if ('digest' in answer) return answer.digest
  throw new Error('internal: a thread audited instead of following')
}

function inThread(
  task: RecomputeTask,
  clock: CoordinatorClock,
): Promise<Exclude<RecomputeAnswer, { readonly error: string }>> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./recompute-bootstrap.mjs', import.meta.url))
    worker.unref() // a process that ends does not wait for it
    const cancelTimer = clock.looseTimer(MOST_MS, () => end(() => reject(new TooLong())))
    const end = (settle: () => void): void => {
      cancelTimer()
      settle()
      void worker.terminate()
    }
    worker.once('message', (answer: RecomputeAnswer) =>
      end(() => ('error' in answer ? reject(new Error(answer.error)) : resolve(answer))),
    )
    worker.once('error', (error) => end(() => reject(error)))
    worker.once('exit', (code) => end(() => reject(new Error(`a recomputation's thread ended with code ${code}`))))
    const sums = task.sums.map(({ buffer }) => buffer as ArrayBuffer)
    worker.postMessage(task, sums) // moved, not copied: the caller has no use for them
  })
}

export class TooLong extends Error {
  constructor() {
    super(`computing a step again takes more than ${MOST_MS / 1000} s here`)
  }
}

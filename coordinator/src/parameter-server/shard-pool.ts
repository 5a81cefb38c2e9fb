// All shards of one parameter server as one. Each command goes to every shard, and the answers come back in the order
// of the ranges. In this thread for small models, in one thread each for large ones.
import { Worker } from 'node:worker_threads'
import type { EncodedVector } from '@starling-grid/model'
import { type CancelTimer, type Clock, systemClock } from '@starling-grid/protocol'
import { Shard, type ShardCommand, type ShardParts } from './shard.ts'

/** ms for a thread to answer: as for a process (shard-processes.ts) */
export const ANSWER_MS = 30_000

export interface ShardPool {
  /** One command at a time. @throws when a thread died; the pool is of no use then */
  run(command: ShardCommand): Promise<readonly Float64Array[]>
  /**
   * The push that the next command is about, where shards have memory of their own: from these bytes, or from the
   * server's own vector.
   */
  take?(encoded: EncodedVector | undefined): Promise<void>
  /**
   * This optimizer state, and this mean of squares if there is one, into the server's own vectors, where shards have
   * memory of their own.
   */
  collect?(state: 0 | 1, square: 'now' | 'at head'): Promise<void>
  /** A6: resolves when no thread runs any more. */
  stop(): Promise<void>
}

export function localShards(shards: readonly ShardParts[]): ShardPool {
  const own = shards.map((parts) => new Shard(parts))
  return { run: async (command) => own.map((shard) => shard.run(command)), stop: async () => undefined }
}

/**
 * Resolves when every thread has its shard. A thread that does not answer within `answerMs` is given up, as a process
 * is.
 */
export async function shardThreads(
  shards: readonly ShardParts[],
  { answerMs = ANSWER_MS, clock = systemClock }: AnswerTime = {},
): Promise<ShardPool> {
  const threads = shards.map((parts) => new ShardThread(parts, { answerMs, clock }))
  let failure: unknown
  const pool: ShardPool = {
    async run(command) {
      if (failure !== undefined) throw failure
      return Promise.all(threads.map((thread) => thread.ask(command))).catch((error: unknown) => {
        failure ??= error
        throw failure
      })
    },
    stop: async () => void (await Promise.all(threads.map((thread) => thread.stop()))),
  }
  try {
    await Promise.all(threads.map((thread) => thread.ready))
    return pool
  } catch (error) {
    await pool.stop()
    throw error
  }
}

export interface AnswerTime {
  /** absent: ANSWER_MS */
  readonly answerMs?: number
  /** absent: the machine's */
  readonly clock?: Clock
}

interface WaitingThread {
  readonly resolve: (answer: Float64Array) => void
  readonly reject: (error: Error) => void
  readonly cancelTimer: CancelTimer
}

class ShardThread {
  readonly ready: Promise<unknown>
  readonly #worker: Worker
  readonly #time: Required<AnswerTime>
  #waiting: WaitingThread | undefined
  #failure: Error | undefined

  constructor(parts: ShardParts, time: Required<AnswerTime>) {
    this.#time = time
    this.#worker = new Worker(new URL('./shard-bootstrap.mjs', import.meta.url), { workerData: parts })
    this.#worker.unref() // a process that ends does not wait for it
    this.ready = this.#answer()
    this.#worker.on('message', (answer: Float64Array) => this.#take()?.resolve(answer))
    this.#worker.on('error', (error) => this.#failed(error instanceof Error ? error : new Error(String(error))))
    this.#worker.on('exit', (code) =>
      this.#failed(new Error(`a thread of the parameter server ended with code ${code}`)),
    )
  }

  async ask(command: ShardCommand): Promise<Float64Array> {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#waiting !== undefined) throw new Error('internal: a shard takes one command at a time')
    const answer = this.#answer()
    this.#worker.postMessage(command)
    return answer
  }

  #answer(): Promise<Float64Array> {
    return new Promise((resolve, reject) => {
      const { clock, answerMs } = this.#time
      const cancelTimer = clock.timer(answerMs, () => this.#hangs())
      this.#waiting = { resolve, reject, cancelTimer }
    })
  }

  #hangs(): void {
    this.#failed(
      new Error(`expected an answer of the parameter server's thread within ${this.#time.answerMs} ms, got none`),
    )
    void this.stop()
  }

  async stop(): Promise<void> {
    await this.#worker.terminate()
  }

  #take(): WaitingThread | undefined {
    const waiting = this.#waiting
    waiting?.cancelTimer()
    this.#waiting = undefined
    return waiting
  }

  #failed(error: Error): void {
    this.#failure ??= error
    this.#take()?.reject(this.#failure)
  }
}

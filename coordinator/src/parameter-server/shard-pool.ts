// All shards of one parameter server as one: a command goes to every one of them, their answers come back in the order of the
// ranges. In this thread for small models, in one thread each for large ones.
import { Worker } from 'node:worker_threads'
import { Shard, type ShardCommand, type ShardParts } from './shard.ts'

export interface ShardPool {
  /** One command at a time. @throws when a thread died; the pool is of no use then */
  run(command: ShardCommand): Promise<readonly Float64Array[]>
  /** This optimizer state, and this mean of squares if there is one, into the server's own vectors, where shards have memory of their own. */
  collect?(state: 0 | 1, square: 'now' | 'at head'): Promise<void>
  /** A6: resolves when no thread runs any more. */
  stop(): Promise<void>
}

export function localShards(shards: readonly ShardParts[]): ShardPool {
  const own = shards.map((parts) => new Shard(parts))
  return { run: async (command) => own.map((shard) => shard.run(command)), stop: async () => undefined }
}

/** Resolves when every thread has its shard. */
export async function shardThreads(shards: readonly ShardParts[]): Promise<ShardPool> {
  const threads = shards.map((parts) => new ShardThread(parts))
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

interface Waiting {
  readonly resolve: (answer: Float64Array) => void
  readonly reject: (error: Error) => void
}

class ShardThread {
  readonly ready: Promise<unknown>
  readonly #worker: Worker
  #waiting: Waiting | undefined
  #failure: Error | undefined

  constructor(parts: ShardParts) {
    this.#worker = new Worker(new URL('./shard-bootstrap.mjs', import.meta.url), { workerData: parts })
    this.#worker.unref() // a process that ends does not wait for it
    this.ready = new Promise<unknown>((resolve, reject) => (this.#waiting = { resolve, reject }))
    this.#worker.on('message', (answer: Float64Array) => this.#take()?.resolve(answer))
    this.#worker.on('error', (error) => this.#failed(error instanceof Error ? error : new Error(String(error))))
    this.#worker.on('exit', (code) => this.#failed(new Error(`a thread of the parameter server ended with code ${code}`)))
  }

  async ask(command: ShardCommand): Promise<Float64Array> {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#waiting !== undefined) throw new Error('internal: a shard takes one command at a time')
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject }
      this.#worker.postMessage(command)
    })
  }

  async stop(): Promise<void> {
    await this.#worker.terminate()
  }

  #take(): Waiting | undefined {
    const waiting = this.#waiting
    this.#waiting = undefined
    return waiting
  }

  #failed(error: Error): void {
    this.#failure ??= error
    this.#take()?.reject(this.#failure)
  }
}

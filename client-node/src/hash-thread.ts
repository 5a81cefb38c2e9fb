// SHA-256 of large vectors on a thread of this process. The platform's own hash first copies its input, into fresh
// memory and on the caller's thread, which takes as long as hashing it.
import { Worker } from 'node:worker_threads'
import { SerialQueue, type Sha256, sha256Of } from '@starling-grid/protocol'

/** Below it the platform's own hash is done before another thread has woken. */
const LEAST_BYTES = 2 ** 22

interface WaitingDigest {
  resolve(digest: Sha256): void
  reject(error: Error): void
}

export class HashThread {
  #worker: Worker | undefined
  #memory = new SharedArrayBuffer(0)
  #waiting: WaitingDigest | undefined
  /** one vector at a time is in the memory */
  readonly #queue = new SerialQueue()

  /** `bytes` stay as they are until it resolves. */
  digestOf(bytes: Uint8Array): Promise<Sha256> {
    if (bytes.byteLength < LEAST_BYTES) return sha256Of(bytes)
    return this.#queue.run(() => this.#hash(bytes).catch(() => sha256Of(bytes)))
  }

  /** The thread ends; another one starts when it is needed. */
  stop(): void {
    void this.#worker?.terminate()
  }

  /** @throws Error when the thread ended */
  #hash(bytes: Uint8Array): Promise<Sha256> {
    const worker = this.#worker ?? this.#spawn()
    this.#worker = worker
    if (this.#memory.byteLength < bytes.byteLength) this.#memory = new SharedArrayBuffer(bytes.byteLength)
    new Uint8Array(this.#memory).set(bytes)
    worker.ref()
    worker.postMessage({ memory: this.#memory, bytes: bytes.byteLength })
    const digest = new Promise<Sha256>((resolve, reject) => {
      this.#waiting = { resolve, reject }
    })
    return digest.finally(() => worker.unref())
  }

  #spawn(): Worker {
    const worker = new Worker(new URL('./hash-worker.mjs', import.meta.url))
    const ended = (): void => {
      if (this.#worker === worker) this.#worker = undefined
      this.#waiting?.reject(new Error('the hashing thread ended'))
    }
    worker.on('message', (digest: Sha256) => this.#waiting?.resolve(digest))
    worker.on('error', ended)
    worker.on('exit', ended)
    return worker
  }
}

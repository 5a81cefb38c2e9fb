// The last state that this volunteer held, in its host's cache, for when it comes back. A cache may forget and may be damaged:
// what is read is compared with its SHA-256, and whether its version is still on the chain is the coordinator's to say (R4).
import { digest, type JobId, type Sha256 } from '@starling-grid/protocol'
import { sha256Of } from '../data/shards.ts'
import type { ShardCache } from '../host.ts'

/** ms between two writes: a disk or a browser's storage is not for a state with every checkpoint */
const KEEP_EVERY_MS = 60_000
/** Larger states are fetched again: writing them takes as long as training some steps. */
const LARGEST_BYTES = 256 * 1024 * 1024
/** Characters of a SHA-256 in hexadecimal, before the state. */
const NAME_LENGTH = 64

export class KeptState {
  readonly #cache: ShardCache
  readonly #name: Sha256
  #keptAt = Number.NEGATIVE_INFINITY

  /** `job`: its id; states of one job take each other's place */
  constructor(cache: ShardCache, job: JobId) {
    this.#cache = cache
    this.#name = digest(new TextEncoder().encode(`the last state of ${job}`))
  }

  /** Something to keep is at hand, and it is time. */
  get due(): boolean {
    return performance.now() - this.#keptAt >= KEEP_EVERY_MS
  }

  /** In the place of the one before. A full cache costs a later download, nothing else. */
  async keep(state: Uint8Array): Promise<void> {
    if (state.byteLength > LARGEST_BYTES) return
    this.#keptAt = performance.now()
    const name = new TextEncoder().encode(await sha256Of(state))
    const bytes = new Uint8Array(NAME_LENGTH + state.byteLength)
    bytes.set(name)
    bytes.set(state, NAME_LENGTH)
    await this.#cache.put(this.#name, bytes).catch(() => undefined)
  }

  async forget(): Promise<void> {
    await this.#cache.put(this.#name, new Uint8Array(0))
  }

  /** Undefined: nothing is kept, or it is not what was written. */
  async read(): Promise<Uint8Array | undefined> {
    const bytes = await this.#cache.get(this.#name).catch(() => undefined)
    if (bytes === undefined || bytes.byteLength <= NAME_LENGTH) return undefined
    const state = bytes.slice(NAME_LENGTH)
    return (await sha256Of(state)) === new TextDecoder().decode(bytes.subarray(0, NAME_LENGTH)) ? state : undefined
  }
}

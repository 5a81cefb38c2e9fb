// The last state that this volunteer held, in its host's cache, for its next visit. With it the proof that R4 asks for:
// the last acknowledged version and the records since. A cache may lose or damage it, so what is read is compared with
// its SHA-256. The coordinator decides whether the version is on the chain.
import {
  type Claim,
  ClaimSchema,
  digest,
  isGridError,
  type JobId,
  parse,
  parseJson,
  type Sha256,
  type Clock,
  sha256Of,
} from '@starling-grid/protocol'
import type { ShardCache } from '../host.ts'

/** ms between two writes: a disk or a browser's storage is not for a state with every checkpoint */
const KEEP_EVERY_MS = 60_000
/** Larger states are fetched again: writing them takes as long as training some steps. */
const LARGEST_BYTES = 256 * 1024 * 1024
/** Characters of a SHA-256 in hexadecimal, before the rest. */
const NAME_LENGTH = 64
/** Bytes that say how long the claim is (u32, little-endian); the claim as JSON follows, then the state. */
const LENGTH_BYTES = 4

export interface Kept {
  readonly state: Uint8Array
  /** what leads to the state's version */
  readonly claim: Claim
}

export class KeptState {
  readonly #cache: ShardCache
  readonly #name: Sha256
  readonly #clock: Pick<Clock, 'now'>
  #keptAt = Number.NEGATIVE_INFINITY

  /** `job`: its id; states of one job take each other's place */
  constructor(cache: ShardCache, job: JobId, clock: Pick<Clock, 'now'>) {
    this.#clock = clock
    this.#cache = cache
    this.#name = digest(new TextEncoder().encode(`the last state of ${job}, and its proof`))
  }

  /** Something to keep is at hand, and it is time. */
  get due(): boolean {
    return this.#clock.now() - this.#keptAt >= KEEP_EVERY_MS
  }

  /** Replaces the one before. A full cache costs a later download, nothing else. */
  async keep(kept: Kept): Promise<void> {
    if (kept.state.byteLength > LARGEST_BYTES) return
    this.#keptAt = this.#clock.now()
    const bytes = encode(kept)
    bytes.set(new TextEncoder().encode(await sha256Of(bytes.subarray(NAME_LENGTH))))
    await this.#cache.put(this.#name, bytes).catch(() => undefined)
  }

  async forget(): Promise<void> {
    await this.#cache.put(this.#name, new Uint8Array(0))
  }

  /** Undefined: nothing is kept, or it is not what was written. */
  async read(): Promise<Kept | undefined> {
    const bytes = await this.#cache.get(this.#name).catch(() => undefined)
    if (bytes === undefined || bytes.byteLength <= NAME_LENGTH + LENGTH_BYTES) return undefined
    const rest = new Uint8Array(bytes.subarray(NAME_LENGTH)) // its own memory: what Node reads may be a view
    const isWhole = (await sha256Of(rest)) === new TextDecoder().decode(bytes.subarray(0, NAME_LENGTH))
    return isWhole ? decode(rest) : undefined
  }
}

/** With room for the SHA-256 in front. */
function encode({ state, claim }: Kept): Uint8Array<ArrayBuffer> {
  const proof = new TextEncoder().encode(JSON.stringify(claim))
  const bytes = new Uint8Array(NAME_LENGTH + LENGTH_BYTES + proof.byteLength + state.byteLength)
  new DataView(bytes.buffer).setUint32(NAME_LENGTH, proof.byteLength, true)
  bytes.set(proof, NAME_LENGTH + LENGTH_BYTES)
  bytes.set(state, NAME_LENGTH + LENGTH_BYTES + proof.byteLength)
  return bytes
}

/** Undefined: it was written by another version of this program. */
function decode(bytes: Uint8Array<ArrayBuffer>): Kept | undefined {
  const start = LENGTH_BYTES + new DataView(bytes.buffer).getUint32(0, true)
  if (start > bytes.byteLength) return undefined
  try {
    const claim = parse(
      ClaimSchema,
      parseJson(new TextDecoder().decode(bytes.subarray(LENGTH_BYTES, start)), bytes.byteLength, 'a kept claim'),
      'kept claim',
    )
    return { state: bytes.slice(start), claim }
  } catch (error) {
    if (!isGridError(error)) throw error
    return undefined
  }
}

// The serving side of a base (frame `shard`): a member gives shards that it keeps to newcomers that prepare. They are
// named by their hash, and only those of the job's own base are given.
import {
  describeError,
  type ErrorCode,
  FRAME_PAYLOAD_BYTES,
  type Frame,
  hex,
  type MemberId,
  readBaseManifest,
  type Sha256,
  sha256Name,
} from '@starling-grid/protocol'
import { blank } from './state-server.ts'
import type { UploadShare } from './upload-share.ts'

/** of a shard's name, as it is asked for */
const NAME_BYTES = 32
/** Newcomers that are served at once: each has one shard in memory here. */
const MAX_ASKERS = 4

export interface BaseServerParts {
  /** of the job's base: the hash of its manifest */
  readonly base: Sha256
  readonly uploads: UploadShare
  /** undefined: not kept any more */
  shardOf(name: Sha256): Promise<Uint8Array | undefined>
  send(to: MemberId, frame: Frame): void
  /** frames of an answer that wait for this member */
  waiting(to: MemberId): number
}

export class BaseServer {
  readonly #parts: BaseServerParts
  readonly #reading = new Set<MemberId>()
  #names: Promise<ReadonlySet<Sha256>> | undefined

  constructor(parts: BaseServerParts) {
    this.#parts = parts
  }

  async serve(from: MemberId, { payload }: Frame): Promise<void> {
    // An honest newcomer has the whole answer before it asks again.
    if (this.#reading.has(from) || this.#parts.waiting(from) > 0 || this.#reading.size >= MAX_ASKERS)
      return this.#refuse(from, 'rate-exceeded', 'expected one question at a time, got more; ask others')
    if (payload.byteLength !== NAME_BYTES)
      return this.#refuse(from, 'message-malformed', 'expected the hash of a shard, got another')
    this.#reading.add(from)
    try {
      const shard = await this.#find(sha256Name(hex(payload)))
      if (shard === undefined) return this.#refuse(from, 'base-stale', 'this shard is not kept here')
      if (!this.#parts.uploads.take(shard.byteLength))
        return this.#refuse(from, 'own-limit', 'the owner of this machine allows no more upload in this hour')
      this.#send(from, shard)
    } catch (error) {
      this.#refuse(from, 'base-stale', `this shard cannot be read here: ${describeError(error)}`)
    } finally {
      this.#reading.delete(from)
    }
  }

  /** What a member keeps of other jobs is not told. */
  async #find(name: Sha256): Promise<Uint8Array | undefined> {
    const { base, shardOf } = this.#parts
    this.#names ??= shardOf(base).then((bytes) => {
      if (bytes === undefined) throw new Error('the manifest of the base is not kept')
      return new Set([base, ...readBaseManifest(bytes).shards.map(({ sha256 }) => sha256)])
    })
    this.#names.catch(() => {
      this.#names = undefined
    })
    return (await this.#names).has(name) ? shardOf(name) : undefined
  }

  #send(to: MemberId, bytes: Uint8Array): void {
    for (let offset = 0; offset < bytes.byteLength; offset += FRAME_PAYLOAD_BYTES)
      this.#parts.send(to, {
        ...blank(0),
        type: 'chunk',
        bucket: bytes.byteLength,
        offset,
        payload: bytes.subarray(offset, offset + FRAME_PAYLOAD_BYTES),
      })
  }

  #refuse(to: MemberId, code: ErrorCode, message: string): void {
    const payload = new TextEncoder().encode(JSON.stringify({ code, message }))
    this.#parts.send(to, { ...blank(0), type: 'refusal', payload })
  }
}

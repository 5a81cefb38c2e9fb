// The serving side of a base (frame `shard`): a member gives shards that it keeps to newcomers that prepare, also while
// it fetches the base itself. They are named by their hash, and only those of the job's own base are given.
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
/** Newcomers that are served at once: each has one shard in memory here, the others are to ask again. */
const MAX_ASKERS = 4

/** No shard is empty: this one says that it may still come, or that others are served first. */
const LATER = new Uint8Array(0)

export interface BaseServerParts {
  /** of the job's base: the hash of its manifest */
  readonly base: Sha256
  readonly uploads: UploadShare
  /** undefined: not kept any more */
  shardOf(name: Sha256): Promise<Uint8Array | undefined>
  send(to: MemberId, frame: Frame): void
  /** frames of an answer that wait for this member */
  waiting(to: MemberId): number
  /** it is being fetched: a shard that is not here may still come */
  isComing(): boolean
}

export class BaseServer {
  readonly #parts: BaseServerParts
  readonly #reading = new Set<MemberId>()
  readonly #served = new Set<MemberId>()
  #names: ReadonlySet<Sha256> | undefined

  constructor(parts: BaseServerParts) {
    this.#parts = parts
  }

  async serve(from: MemberId, { payload }: Frame): Promise<void> {
    // An honest newcomer has the whole answer before it asks again.
    if (this.#isBusyWith(from))
      return this.#refuse(from, 'rate-exceeded', 'expected one question at a time, got more; ask others')
    if (payload.byteLength !== NAME_BYTES)
      return this.#refuse(from, 'message-malformed', 'expected the hash of a shard, got another')
    if (!this.#admits(from)) return this.#send(from, LATER)
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

  #isBusyWith(member: MemberId): boolean {
    return this.#reading.has(member) || this.#parts.waiting(member) > 0
  }

  #admits(from: MemberId): boolean {
    for (const member of this.#served) if (!this.#isBusyWith(member)) this.#served.delete(member)
    if (this.#served.size >= MAX_ASKERS) return false
    this.#served.add(from)
    return true
  }

  /** LATER: it may still come. Undefined: it is not kept, or not of this job: what others have is not told. */
  async #find(name: Sha256): Promise<Uint8Array | undefined> {
    const { base, shardOf, isComing } = this.#parts
    this.#names ??= await this.#namesOf(base)
    if (this.#names === undefined && !isComing()) throw new Error('the manifest of the base is not kept')
    if (this.#names?.has(name) === false) return undefined
    return (this.#names && (await shardOf(name))) ?? (isComing() ? LATER : undefined)
  }

  async #namesOf(base: Sha256): Promise<ReadonlySet<Sha256> | undefined> {
    const bytes = await this.#parts.shardOf(base)
    return bytes && new Set([base, ...readBaseManifest(bytes).shards.map(({ sha256 }) => sha256)])
  }

  /** One frame at least: that of LATER has no bytes, of a whole of none. */
  #send(to: MemberId, bytes: Uint8Array): void {
    for (let offset = 0; offset === 0 || offset < bytes.byteLength; offset += FRAME_PAYLOAD_BYTES)
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

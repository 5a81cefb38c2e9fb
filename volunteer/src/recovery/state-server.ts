// The serving side of a fetch (R7): hashes first, then runs of bytes of the one version that is held whole. A herd of
// newcomers is told to wait: each costs this member a state's worth of upload.
import {
  describeError,
  type ErrorCode,
  FetchSchema,
  FRAME_PAYLOAD_BYTES,
  type FetchRequest,
  type Frame,
  type MemberId,
  parse,
  parseJson,
  hashChunks,
  type Clock,
  type CancelTimer,
  sameVersion,
} from '@starling-grid/protocol'
import { SharedVersion } from './shared-version.ts'
import type { UploadShare } from './upload-share.ts'

/** Members that are served at once. */
const MAX_ASKERS = 4
/** ms without a request after which a requester is done, or is gone */
const ASKER_MS = 2000
/**
 * ms without a question after which the copy for newcomers is dropped: it is as large as all that training needs beside
 * it
 */
const COPY_MS = 60_000
/** Bytes of a request's JSON. */
const MAX_REQUEST_BYTES = 1024

export interface StateServerParts {
  readonly clock: Clock
  /** only while the ballot is the promised one and the version is held whole (R7) */
  mayServe(request: FetchRequest, generation: number): boolean
  /** the ballot that this member promised */
  promised(): number
  /** undefined: not kept any more */
  bytesOf(request: FetchRequest): Uint8Array | undefined
  send(to: MemberId, frame: Frame): void
}

interface Served {
  readonly name: string
  readonly bytes: Uint8Array
  hashes: Promise<Uint8Array> | undefined
}

export class StateServer {
  readonly #parts: StateServerParts
  /** member → when it last asked, ms */
  readonly #askers = new Map<MemberId, number>()
  /** of each kind what is being served: one copy for all askers */
  readonly #served = new Map<FetchRequest['kind'], Served>()
  /** of an earlier version, whole and committed, for newcomers while the ring goes on: one at most */
  #copy: Served | undefined
  #shared: SharedVersion | undefined
  #cancelCopyTimer: CancelTimer = () => undefined

  constructor(parts: StateServerParts) {
    this.#parts = parts
  }

  /** @throws GridError when what came is no request */
  serve(from: MemberId, frame: Frame): void {
    const request = parse(
      FetchSchema,
      parseJson(new TextDecoder().decode(frame.payload), MAX_REQUEST_BYTES, 'a fetch request'),
      'a fetch request',
    )
    if (request.kind === 'parameters') return this.#serveShared(from, frame, request)
    const mayServe =
      this.#parts.mayServe(request, frame.generation) ||
      (this.#isCopied(request) && frame.generation === this.#parts.promised())
    if (!mayServe)
      return this.#refuse(from, frame, 'base-stale', `version ${request.version.v} is not held whole in this ballot`)
    if (!this.#admit(from))
      return this.#refuse(
        from,
        frame,
        'rate-exceeded',
        `expected at most ${MAX_ASKERS} members at a time, got one more; ask again in a moment`,
      )
    const served = this.#find(request)
    if (served === undefined)
      return this.#refuse(from, frame, 'base-stale', `the ${request.kind} of version ${request.version.v} is not kept`)
    if (request.ask === 'hashes') return void this.#sendHashes(from, frame.generation, served)
    if (request.from >= served.bytes.byteLength || request.length === 0)
      return this.#refuse(
        from,
        frame,
        'message-malformed',
        `expected a range within ${served.bytes.byteLength} bytes, got ${request.length} from ${request.from} on`,
      )
    this.#sendBytes(from, frame.generation, { served, request })
  }

  /**
   * What this member begins its round from, or fetches to begin: others may ask for its chunks, and get each as soon as
   * it is here (G3). Replaces the last one.
   */
  share(version: FetchRequest['version'], uploads: UploadShare): SharedVersion {
    this.#shared?.end()
    this.#shared = new SharedVersion(version, uploads)
    return this.#shared
  }

  #serveShared(from: MemberId, frame: Frame, request: FetchRequest): void {
    const shared = this.#shared
    if (
      shared === undefined ||
      !sameVersion(shared.version, request.version) ||
      frame.generation !== this.#parts.promised()
    )
      return this.#refuse(from, frame, 'base-stale', `version ${request.version.v} is not what this member begins from`)
    if (!this.#admit(from))
      return this.#refuse(
        from,
        frame,
        'rate-exceeded',
        `expected at most ${MAX_ASKERS} members at a time, got one more`,
      )
    shared.when(from, request).then(
      (bytes) => this.#sendBytes(from, frame.generation, { served: { bytes }, request }),
      (error: unknown) => this.#refuse(from, frame, 'base-stale', describeError(error)),
    )
  }

  /** Replaces the last copy. */
  keep({ v, id }: FetchRequest['version'], bytes: Uint8Array): void {
    this.#copy = { name: `${v} ${id}`, bytes, hashes: undefined }
    this.#keepOn()
  }

  #keepOn(): void {
    this.#cancelCopyTimer()
    this.#cancelCopyTimer = this.#parts.clock.timer(COPY_MS, () => {
      this.#copy = undefined
    })
  }

  #isCopied({ kind, version: { v, id } }: FetchRequest): boolean {
    return kind === 'state' && this.#copy?.name === `${v} ${id}`
  }

  stop(): void {
    this.#shared?.end()
    this.#shared = undefined
    this.#cancelCopyTimer()
    this.#copy = undefined
  }

  /** What was served belongs to a ballot that is over; the copy is of a committed version, and stays. */
  forget(): void {
    this.#shared?.end()
    this.#shared = undefined
    this.#served.clear()
    this.#askers.clear()
  }

  #admit(member: MemberId): boolean {
    const now = this.#parts.clock.now()
    for (const [asker, at] of this.#askers) if (now - at > ASKER_MS) this.#askers.delete(asker)
    if (!this.#askers.has(member) && this.#askers.size >= MAX_ASKERS) return false
    this.#askers.set(member, now)
    return true
  }

  #find(request: FetchRequest): Served | undefined {
    const name = `${request.version.v} ${request.version.id}`
    if (this.#isCopied(request)) return (this.#keepOn(), this.#copy)
    const existing = this.#served.get(request.kind)
    if (existing?.name === name) return existing
    const bytes = this.#parts.bytesOf(request)
    if (bytes === undefined) return undefined
    const served: Served = { name, bytes, hashes: undefined }
    this.#served.set(request.kind, served)
    return served
  }

  async #sendHashes(to: MemberId, generation: number, served: Served): Promise<void> {
    served.hashes ??= hashChunks(served.bytes)
    this.#parts.send(to, {
      ...blank(generation),
      type: 'hashes',
      bucket: served.bytes.byteLength,
      payload: await served.hashes,
    })
  }

  #sendBytes(
    to: MemberId,
    generation: number,
    { served: { bytes }, request }: { readonly served: Pick<Served, 'bytes'>; readonly request: FetchRequest },
  ): void {
    const end = Math.min(bytes.byteLength, request.from + request.length)
    for (let offset = request.from; offset < end; offset += FRAME_PAYLOAD_BYTES)
      this.#parts.send(to, {
        ...blank(generation),
        type: 'chunk',
        bucket: bytes.byteLength,
        offset,
        payload: bytes.subarray(offset, Math.min(end, offset + FRAME_PAYLOAD_BYTES)),
      })
  }

  #refuse(to: MemberId, { generation }: Frame, code: ErrorCode, message: string): void {
    this.#parts.send(to, {
      ...blank(generation),
      type: 'refusal',
      payload: new TextEncoder().encode(JSON.stringify({ code, message })),
    })
  }
}

/** A frame of a fetch without what makes it one of its kind. */
export function blank(generation: number): Frame {
  return { type: 'fetch', generation, step: 0, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(0) }
}

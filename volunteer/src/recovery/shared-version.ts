// A version that this member begins a round from, for others that begin from it, too (G3). Its chunks come one after
// the other, and questions for a chunk that is not here wait for it.
import { FETCH_CHUNK_BYTES, type FetchRequest, GridError, type MemberId } from '@starling-grid/protocol'
import type { UploadShare } from './upload-share.ts'

interface WaitingQuestion {
  readonly request: FetchRequest
  resolve(bytes: Uint8Array): void
  reject(error: GridError): void
}

export class SharedVersion {
  readonly version: FetchRequest['version']
  readonly #uploads: UploadShare
  /** undefined: nothing is here yet */
  #bytes: Uint8Array | undefined
  /** indexes of chunks; undefined: all are here */
  #here: Set<number> | undefined = new Set()
  /** an honest member asks for one chunk at a time */
  readonly #waiting = new Map<MemberId, WaitingQuestion>()
  #isOver = false

  constructor(version: FetchRequest['version'], uploads: UploadShare) {
    this.version = version
    this.#uploads = uploads
  }

  /** A chunk of `bytes` is in its place. */
  chunk(bytes: Uint8Array, from: number): void {
    this.#bytes = bytes
    this.#here?.add(Math.floor(from / FETCH_CHUNK_BYTES))
    this.#answer()
  }

  whole(bytes: Uint8Array): void {
    this.#bytes = bytes
    this.#here = undefined
    this.#answer()
  }

  /** It did not come, or another replaces it. */
  end(): void {
    this.#isOver = true
    for (const [member, { reject }] of this.#waiting) {
      this.#waiting.delete(member)
      reject(new GridError('base-stale', 'this version is not here any more'))
    }
  }

  /**
   * All bytes, when those of the request are here. @throws GridError 'base-stale', 'own-limit', 'message-malformed',
   * 'rate-exceeded' when the member asks again meanwhile
   */
  when(from: MemberId, request: FetchRequest): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#isOver) return reject(new GridError('base-stale', 'this version is not here any more'))
      this.#waiting.get(from)?.reject(new GridError('rate-exceeded', 'expected one question at a time, got another'))
      this.#waiting.set(from, { request, resolve, reject })
      this.#answer()
    })
  }

  #answer(): void {
    const bytes = this.#bytes
    if (bytes === undefined) return
    for (const [member, { request, resolve, reject }] of this.#waiting) {
      if (!this.#has(request)) continue
      this.#waiting.delete(member)
      const { from, length } = request
      if (length === 0 || from + length > bytes.byteLength)
        reject(new GridError('message-malformed', `expected a range within ${bytes.byteLength} bytes, got another`))
      else if (this.#uploads.take(length)) resolve(bytes)
      else reject(new GridError('own-limit', 'the owner of this machine allows no more upload in this hour'))
    }
  }

  #has({ from, length }: FetchRequest): boolean {
    const here = this.#here
    if (here === undefined) return true
    const last = Math.floor((from + Math.max(length, 1) - 1) / FETCH_CHUNK_BYTES)
    for (let index = Math.floor(from / FETCH_CHUNK_BYTES); index <= last; index++) if (!here.has(index)) return false
    return true
  }
}

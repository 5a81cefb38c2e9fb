// Resources of the coordinator over HTTP: shards, versions, pushes. Answers are bounded before they are read.
import { GridError, isErrorCode, isGridError, type JobId, MAX_SHARD_BYTES, type Push, type Sha256, type SparsePart, type VersionRef } from '@starling-grid/protocol'

/** Header that carries what a push says about its body. */
export const PUSH_HEADER = 'x-starling-push'

/** HTTP status of an answer to a range; a proxy may send everything instead */
const PARTIAL_CONTENT = 206
/** ms before a coordinator that serves many others is asked again, at most; drawn below it */
const BUSY_MS = 2000
/** Times that it is asked: as long as a generation may take to form. */
const BUSY_TRIES = 30

/** Header that says of which matrices how many rows are asked for. */
export const ROWS_HEADER = 'x-starling-rows'

export interface RowsWanted {
  readonly parts: readonly SparsePart[]
  /** of the rows, as the body of the request */
  readonly numbers: Uint8Array
  /** that the answer has */
  readonly bytes: number
}

export interface PushAnswer {
  readonly verdict: string
  readonly message: string
}

export class CoordinatorHttp {
  readonly #url: string
  readonly #session: () => string

  constructor(url: string, session: () => string) {
    this.#url = url
    this.#session = session
  }

  shard(name: Sha256): Promise<Uint8Array> {
    return this.#get(`/api/shards/${name}`, { maxBytes: MAX_SHARD_BYTES })
  }

  /** Safetensors of a version: its parameters. */
  parameters(job: JobId, version: VersionRef, maxBytes: number): Promise<Uint8Array> {
    return this.#get(`/api/jobs/${job}/versions/${version.id}?part=parameters`, { maxBytes })
  }

  /** Its whole state, from a byte on: what came from elsewhere need not come again. Waits its turn when many want it. */
  async state(job: JobId, version: VersionRef, { from, maxBytes }: { readonly from: number; readonly maxBytes: number }): Promise<Uint8Array> {
    const path = `/api/jobs/${job}/versions/${version.id}`
    for (let tries = 1; ; tries++) {
      try {
        return await this.#get(path, { maxBytes, from })
      } catch (error) {
        const busy = isGridError(error) && error.code === 'rate-exceeded'
        if (!busy || tries >= BUSY_TRIES) throw error
        await new Promise((resolve) => setTimeout(resolve, BUSY_MS * Math.random()))
      }
    }
  }

  async upload(job: JobId, version: VersionRef, bytes: Uint8Array): Promise<void> {
    await this.#ask(`/api/jobs/${job}/versions/${version.v}/${version.id}`, { method: 'PUT', headers: { 'content-type': 'application/octet-stream' }, body: bytes as BodyInit })
  }

  /** Parameters with only these rows of some matrices; the body has the form of a sparse push. */
  async rows(job: JobId, version: VersionRef, wanted: RowsWanted): Promise<Uint8Array> {
    const headers = { 'content-type': 'application/octet-stream', [ROWS_HEADER]: JSON.stringify(wanted.parts) }
    const path = `/api/jobs/${job}/versions/${version.id}/rows`
    return bytesOf(await this.#ask(path, { method: 'POST', headers, body: wanted.numbers as BodyInit }), path, wanted.bytes)
  }

  /** Σ gradients of a lease (A2). A refusal is an answer here, not an error. */
  async push(job: JobId, push: Push, gradient: Uint8Array): Promise<PushAnswer> {
    const headers = { 'content-type': 'application/octet-stream', [PUSH_HEADER]: JSON.stringify(push) }
    const response = await this.#send(`/api/jobs/${job}/pushes`, { method: 'POST', headers, body: gradient as BodyInit })
    const answer: unknown = await response.json().catch(() => undefined)
    const field = (name: string): string => (typeof answer === 'object' && answer !== null && name in answer ? String((answer as Record<string, unknown>)[name]) : '')
    return { verdict: field('verdict') || field('code'), message: field('message') }
  }

  /** Σ gradients of guests that this member was given to contribute (A1). */
  guestSum(job: JobId, id: number, bytes: number): Promise<Uint8Array> {
    return this.#get(`/api/jobs/${job}/guests/${id}`, { maxBytes: bytes })
  }

  async #get(path: string, { maxBytes, from = 0 }: { readonly maxBytes: number; readonly from?: number }): Promise<Uint8Array> {
    const response = await this.#ask(path, from === 0 ? {} : { headers: { range: `bytes=${from}-` } })
    const bytes = await bytesOf(response, path, maxBytes)
    return from > 0 && response.status === PARTIAL_CONTENT ? bytes : bytes.subarray(from)
  }

  async #ask(path: string, init: RequestInit): Promise<Response> {
    const response = await this.#send(path, init)
    if (response.ok) return response
    const refusal: unknown = await response.json().catch(() => undefined)
    const { code, message } = typeof refusal === 'object' && refusal !== null ? (refusal as { code?: unknown; message?: unknown }) : {}
    throw new GridError(typeof code === 'string' && isErrorCode(code) ? code : 'coordinator-lost', `${path}: ${typeof message === 'string' ? message : `HTTP ${response.status}`}`)
  }

  async #send(path: string, init: RequestInit): Promise<Response> {
    try {
      return await fetch(this.#url + path, { ...init, headers: { ...init.headers, authorization: `Bearer ${this.#session()}` } })
    } catch (cause) {
      throw new GridError('coordinator-lost', `${path}: the coordinator did not answer`, { cause })
    }
  }
}

/** @throws GridError 'message-too-large' */
async function bytesOf(response: Response, path: string, maxBytes: number): Promise<Uint8Array> {
  const announced = Number(response.headers.get('content-length') ?? 0)
  if (announced > maxBytes) throw new GridError('message-too-large', `${path} has ${announced} bytes, at most ${maxBytes} are taken`)
  const bytes = new Uint8Array(await response.arrayBuffer())
  if (bytes.byteLength > maxBytes) throw new GridError('message-too-large', `${path} has ${bytes.byteLength} bytes, at most ${maxBytes} are taken`)
  return bytes
}

// Resources of the coordinator over HTTP: shards, versions, pushes. Answers are bounded before they are read.
import { GridError, isErrorCode, type JobId, MAX_SHARD_BYTES, type Push, type Sha256, type VersionRef } from '@starling-grid/protocol'

/** Header that carries what a push says about its body. */
export const PUSH_HEADER = 'x-starling-push'

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
    return this.#get(`/api/shards/${name}`, MAX_SHARD_BYTES)
  }

  /** Safetensors of a version: its whole state, or only its parameters. */
  version(job: JobId, version: VersionRef, part: 'state' | 'parameters', maxBytes: number): Promise<Uint8Array> {
    return this.#get(`/api/jobs/${job}/versions/${version.id}${part === 'parameters' ? '?part=parameters' : ''}`, maxBytes)
  }

  async upload(job: JobId, version: VersionRef, bytes: Uint8Array): Promise<void> {
    await this.#ask(`/api/jobs/${job}/versions/${version.v}/${version.id}`, { method: 'PUT', headers: { 'content-type': 'application/octet-stream' }, body: bytes as BodyInit })
  }

  /** Σ gradients of a lease (A2). A refusal is an answer here, not an error. */
  async push(job: JobId, push: Push, gradient: Uint8Array): Promise<PushAnswer> {
    const headers = { 'content-type': 'application/octet-stream', [PUSH_HEADER]: JSON.stringify(push) }
    const response = await this.#send(`/api/jobs/${job}/pushes`, { method: 'POST', headers, body: gradient as BodyInit })
    const answer: unknown = await response.json().catch(() => undefined)
    const field = (name: string): string => (typeof answer === 'object' && answer !== null && name in answer ? String((answer as Record<string, unknown>)[name]) : '')
    return { verdict: field('verdict') || field('code'), message: field('message') }
  }

  async #get(path: string, maxBytes: number): Promise<Uint8Array> {
    const response = await this.#ask(path, {})
    const announced = Number(response.headers.get('content-length') ?? 0)
    if (announced > maxBytes) throw new GridError('message-too-large', `${path} has ${announced} bytes, at most ${maxBytes} are taken`)
    const bytes = new Uint8Array(await response.arrayBuffer())
    if (bytes.byteLength > maxBytes) throw new GridError('message-too-large', `${path} has ${bytes.byteLength} bytes, at most ${maxBytes} are taken`)
    return bytes
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

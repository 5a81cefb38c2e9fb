// Resources of the coordinator over HTTP: shards, versions, pushes. Answers are bounded before they are read. A request
// that gets no good answer is tried again, for as long as what it is for can wait. Then its caller hands the work back
// (R14).
import {
  type Clock,
  type ErrorCode,
  GridError,
  type HashList,
  hashListBytes,
  isErrorCode,
  type JobId,
  MAX_SHARD_BYTES,
  pathTo,
  type PushHeader,
  PUSH_HEADER,
  readHashList,
  ROUTES,
  ROWS_HEADER,
  type Sha256,
  type SparsePart,
  type VersionRef,
} from '@starling-grid/protocol'
import { isFatalCode } from './fatal.ts'
import { type Backoff, persistently } from './retry.ts'

/** HTTP status of an answer to a range; a proxy may send everything instead */
const PARTIAL_CONTENT = 206
/**
 * Answers after which the same request may succeed: the session is renewed, the coordinator is busy, or it starts
 * again.
 */
const TRANSIENT: ReadonlySet<number> = new Set([401, 408, 425, 429])
const SERVER_ERRORS = 500
const TOO_MANY = 429
/** of a refusal, of what became of a push, or of votes on kernel variants */
const MAX_ANSWER_BYTES = 64 * 1024

export interface RowsWanted {
  readonly parts: readonly SparsePart[]
  /** of the rows, as the body of the request */
  readonly numbers: Uint8Array
  /** that the answer has */
  readonly bytes: number
}

export interface PushReply {
  readonly verdict: string
  readonly message: string
}

/** ms */
export interface RequestTimes {
  readonly backoff: Backoff
  /** in which another try may begin */
  readonly withinMs: number
  /** for the answer to begin, and between two pieces of it; in each such time SLOWEST_ANSWER has to come */
  readonly silenceMs: number
}

/**
 * A coordinator that starts again is back within seconds, and a herd of 5,000 comes back within the longest wait. A
 * generation takes half a minute to form (formMs), a lease lasts for a minute: after withinMs the work is better done
 * elsewhere.
 */
export const REQUEST_TIMES: RequestTimes = {
  backoff: { firstMs: 300, mostMs: 4000 },
  withinMs: 30_000,
  silenceMs: 20_000,
}
/** bytes a ms of the slowest line that is worth waiting for: a body may take so long on its way to the coordinator */
const SLOWEST_LINE = 32
/** bytes a ms of an answer: a coordinator or a proxy that sends less would keep the volunteer waiting for ever */
const SLOWEST_ANSWER = 4

export interface Asked {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Uint8Array
}

/** One request; its answer as it comes, neither decoded where it is encoded nor followed where it is a redirect. */
export type SendRequest = (url: string, asked: Asked & { readonly signal: AbortSignal }) => Promise<Response>

/** A redirect could name a machine of the volunteer's own network: it is an answer like any other refusal. */
const byFetch: SendRequest = (url, { body, ...asked }) =>
  fetch(url, { ...asked, ...(body === undefined ? {} : { body: body as BodyInit }), redirect: 'manual' })

export interface CoordinatorHttpOptions {
  readonly clock: Clock
  readonly times?: RequestTimes
  /** absent: with fetch */
  readonly send?: SendRequest | undefined
  /** called with the bytes of a body; throws when the owner's limit does not allow them */
  readonly beforeSending?: (bytes: number) => void
}

/** How the parameters of a version are asked for. */
export type RoundBaseForm = 'f32' | 'f16'

export class CoordinatorHttp {
  readonly #url: () => string
  readonly #session: () => string
  readonly #signal: AbortSignal
  readonly #times: RequestTimes
  readonly #sendRequest: SendRequest

  readonly #clock: Clock
  readonly #beforeSending: (bytes: number) => void

  /** `url`: of the coordinator that the volunteer speaks to now; `signal`: the volunteer ends */
  constructor(
    url: () => string,
    session: () => string,
    signal: AbortSignal,
    { clock, times = REQUEST_TIMES, send = byFetch, beforeSending = () => undefined }: CoordinatorHttpOptions,
  ) {
    this.#clock = clock
    this.#beforeSending = beforeSending
    this.#url = url
    this.#session = session
    this.#signal = signal
    this.#times = times
    this.#sendRequest = send
  }

  shard(name: Sha256): Promise<Uint8Array> {
    return this.#get(pathTo(ROUTES.shard, { sha256: name }), { maxBytes: MAX_SHARD_BYTES })
  }

  /** Safetensors of a version: its parameters. */
  parameters(job: JobId, version: VersionRef, maxBytes: number): Promise<Uint8Array> {
    return this.#get(parametersPath(job, version, 'f32'), { maxBytes })
  }

  /** The parameters that rounds begin from, from a byte on; as halves (model/src/encoded-vector.ts), or safetensors. */
  roundBase(
    job: JobId,
    version: VersionRef,
    { as, maxBytes, from = 0 }: { readonly as: RoundBaseForm; readonly maxBytes: number; readonly from?: number },
  ): Promise<Uint8Array> {
    return this.#get(parametersPath(job, version, as), { maxBytes, from })
  }

  /** What the chunks of these are (G3). @throws GridError 'message-malformed' */
  async hashesOfBase(
    job: JobId,
    version: VersionRef,
    { as, maxBytes }: { readonly as: RoundBaseForm; readonly maxBytes: number },
  ): Promise<HashList> {
    const path = `${parametersPath(job, version, as)}&hashes=1`
    return readHashList(await this.#get(path, { maxBytes: hashListBytes(maxBytes) }), maxBytes)
  }

  /**
   * Its whole state, from a byte on: what came from elsewhere need not come again. Waits its turn when many requests
   * are under way.
   */
  state(
    job: JobId,
    version: VersionRef,
    { from, maxBytes }: { readonly from: number; readonly maxBytes: number },
  ): Promise<Uint8Array> {
    return this.#get(versionPath(job, version), { maxBytes, from })
  }

  async upload(job: JobId, version: VersionRef, bytes: Uint8Array): Promise<void> {
    const path = pathTo(ROUTES.upload, { id: job, v: version.v, versionId: version.id })
    await this.#persistently(async () => void (await this.#ask(path, { method: 'PUT', ...binary(bytes) })))
  }

  /** Σ gradients of the steps up to this version, one after the other; nothing: they are not kept any more. */
  async sums(job: JobId, version: VersionRef, bytes: Uint8Array): Promise<void> {
    const path = pathTo(ROUTES.sums, { id: job, versionId: version.id })
    await this.#persistently(async () => void (await this.#ask(path, { method: 'PUT', ...binary(bytes) })))
  }

  /** Parameters with only these rows of some matrices; the body has the form of a sparse push. */
  rows(job: JobId, version: VersionRef, wanted: RowsWanted): Promise<Uint8Array> {
    const path = pathTo(ROUTES.rows, { id: job, versionId: version.id })
    const asked = { method: 'POST', ...binary(wanted.numbers, { [ROWS_HEADER]: JSON.stringify(wanted.parts) }) }
    return this.#persistently(async () => this.#bytesOf(await this.#ask(path, asked), path, wanted.bytes))
  }

  /**
   * Σ gradients of a lease (A2). A refusal is an answer here, not an error: a second try of a push that was taken is a
   * `duplicate`.
   */
  push(job: JobId, push: PushHeader, gradient: Uint8Array): Promise<PushReply> {
    const path = pathTo(ROUTES.pushes, { id: job })
    const asked = { method: 'POST', ...binary(gradient, { [PUSH_HEADER]: JSON.stringify(push) }) }
    return this.#persistently(async () => {
      const { verdict, code, message } = answerIn(
        await this.#bytesOf(await this.#send(path, asked), path, MAX_ANSWER_BYTES),
      )
      return { verdict: verdict || code, message }
    })
  }

  /** Σ gradients that this member was given to contribute (A1). */
  givenSum(job: JobId, id: number, bytes: number): Promise<Uint8Array> {
    return this.#get(pathTo(ROUTES.givenSum, { id: job, sum: id }), { maxBytes: bytes })
  }

  /** Kernel variants that others found fastest; `report`: those that this volunteer did. One try: nothing waits. */
  async variants(adapterClass: Sha256, report?: Uint8Array): Promise<Uint8Array> {
    const path = pathTo(ROUTES.variants, { adapterClass })
    const asked = report === undefined ? {} : { method: 'PUT', ...binary(report) }
    return this.#bytesOf(await this.#ask(path, asked), path, MAX_ANSWER_BYTES)
  }

  #get(
    path: string,
    { maxBytes, from = 0 }: { readonly maxBytes: number; readonly from?: number },
  ): Promise<Uint8Array> {
    return this.#persistently(async () => {
      const response = await this.#ask(path, from === 0 ? {} : { headers: { range: `bytes=${from}-` } })
      const bytes = await this.#bytesOf(response, path, maxBytes)
      return from > 0 && response.status === PARTIAL_CONTENT ? bytes : bytes.subarray(from)
    })
  }

  #persistently<T>(task: () => Promise<T>): Promise<T> {
    const { backoff, withinMs } = this.#times
    return persistently(task, {
      backoff,
      withinMs,
      clock: this.#clock,
      signal: this.#signal,
      worthIt: (error) => error instanceof Transient,
    })
  }

  async #ask(path: string, asked: Asked): Promise<Response> {
    const response = await this.#send(path, asked)
    if (response.ok) return response
    const { code, message } = answerIn(await this.#bytesOf(response, path, MAX_ANSWER_BYTES))
    // What ends a volunteer is said on its socket, never by one request.
    throw new GridError(
      code !== '' && !isFatalCode(code) ? code : 'coordinator-lost',
      `${path}: ${message || `HTTP ${response.status}`}`,
    )
  }

  /** @throws Transient */
  async #send(path: string, asked: Asked): Promise<Response> {
    const response = await this.#sendOnce(path, asked)
    if (!isTransient(response.status)) return response
    void response.body?.cancel().catch(() => undefined)
    throw new Transient(
      response.status === TOO_MANY ? 'rate-exceeded' : 'coordinator-lost',
      `${path}: HTTP ${response.status}`,
    )
  }

  async #sendOnce(path: string, asked: Asked): Promise<Response> {
    const silence = new AbortController()
    const bytes = asked.body?.byteLength ?? 0
    this.#beforeSending(bytes)
    const cancelTimer = this.#clock.timer(this.#times.silenceMs + bytes / SLOWEST_LINE, () => silence.abort())
    try {
      return await this.#sendRequest(this.#url() + path, {
        ...asked,
        headers: { ...asked.headers, 'accept-encoding': 'identity', authorization: `Bearer ${this.#session()}` },
        signal: AbortSignal.any([this.#signal, silence.signal]),
      })
    } catch (cause) {
      throw new Transient('coordinator-lost', `${path}: the coordinator did not answer`, { cause })
    } finally {
      cancelTimer()
    }
  }

  /** @throws GridError 'message-too-large', 'message-malformed', 'coordinator-lost' when the rest does not come */
  async #bytesOf(response: Response, path: string, maxBytes: number): Promise<Uint8Array> {
    const refusal = refusalAtSight(response.headers, path, maxBytes)
    if (refusal !== undefined) {
      void response.body?.cancel().catch(() => undefined)
      throw refusal
    }
    const pieces: Uint8Array[] = []
    let length = 0
    const moves = progress(this.#clock, this.#times.silenceMs)
    for (const reader = response.body?.getReader(); reader !== undefined;) {
      const { done, value } = await within(reader.read(), this.#times.silenceMs, this.#clock).catch(
        (cause: unknown) => {
          void reader.cancel().catch(() => undefined)
          throw new Transient('coordinator-lost', `${path}: the answer broke off after ${length} bytes`, { cause })
        },
      )
      if (done) break
      pieces.push(value)
      length += value.byteLength
      if (length <= maxBytes && moves(length)) continue
      void reader.cancel().catch(() => undefined)
      if (length > maxBytes) throw tooLarge(path, length, maxBytes)
      throw new Transient('coordinator-lost', `${path}: the answer came too slowly, ${length} bytes of it`)
    }
    return joined(pieces, length)
  }
}

/** The same request may succeed when it is sent again. */
class Transient extends GridError {}

function isTransient(status: number): boolean {
  return TRANSIENT.has(status) || status >= SERVER_ERRORS
}

/** Before a byte of the body is read. What was encoded may become any size, and a small one says nothing of it. */
function refusalAtSight(headers: Headers, path: string, maxBytes: number): GridError | undefined {
  const encoding = headers.get('content-encoding') ?? 'identity'
  const announced = Number(headers.get('content-length') ?? 0)
  if (encoding !== 'identity')
    return new GridError(
      'message-malformed',
      `expected ${path} as it is, got it encoded as ${encoding.slice(0, 40)}; ` +
        'remove what compresses between coordinator and volunteer',
    )
  return announced > maxBytes ? tooLarge(path, announced, maxBytes) : undefined
}

function tooLarge(path: string, bytes: number, maxBytes: number): GridError {
  return new GridError('message-too-large', `expected at most ${maxBytes} bytes of ${path}, got ${bytes}`)
}

function binary(bytes: Uint8Array, headers: Readonly<Record<string, string>> = {}): Asked {
  return { headers: { 'content-type': 'application/octet-stream', ...headers }, body: bytes }
}

function parametersPath(job: JobId, version: VersionRef, as: RoundBaseForm): string {
  return `${versionPath(job, version)}?part=parameters${as === 'f16' ? '&as=f16' : ''}`
}

/** Empty texts for what is no answer of a coordinator. */
function versionPath(job: JobId, version: VersionRef): string {
  return pathTo(ROUTES.version, { id: job, versionId: version.id })
}

function answerIn(bytes: Uint8Array): {
  readonly verdict: string
  readonly code: ErrorCode | ''
  readonly message: string
} {
  const answer = jsonOf(bytes)
  const fields = typeof answer === 'object' && answer !== null ? (answer as Record<string, unknown>) : {}
  const text = (name: string): string => (typeof fields[name] === 'string' ? fields[name] : '')
  const code = text('code')
  return { verdict: text('verdict'), code: isErrorCode(code) ? code : '', message: text('detail') || text('message') }
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return undefined
  }
}

function within<T>(work: Promise<T>, ms: number, clock: Clock): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancelTimer = clock.timer(ms, () => reject(new Error(`expected bytes within ${ms} ms, got none`)))
    work.then(resolve, reject).finally(cancelTimer)
  })
}

/** Whether an answer of so many bytes by now came at SLOWEST_ANSWER or faster, in each whole window. */
function progress(clock: Clock, windowMs: number): (bytes: number) => boolean {
  let since = clock.now()
  let before = 0
  return (bytes) => {
    const took = clock.now() - since
    if (took < windowMs) return true
    const isFast = bytes - before >= SLOWEST_ANSWER * took
    since += took
    before = bytes
    return isFast
  }
}

function joined(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const [only] = pieces
  if (only !== undefined && pieces.length === 1) return only
  const bytes = new Uint8Array(length)
  let at = 0
  for (const piece of pieces) {
    bytes.set(piece, at)
    at += piece.byteLength
  }
  return bytes
}

// The coordinator's HTTP API for owners and readers, typed by the schemas of the protocol: what commands and programs
// use.
import { open } from 'node:fs/promises'
import { sendRequest } from '@starling-grid/client-node/http'
import {
  allPages,
  allRecords,
  type CheckpointList,
  type CoordinatorList,
  describeError,
  type GroupSeats,
  GridError,
  type InviteView,
  isGridError,
  isSameAuthority,
  type JobList,
  type JobSpec,
  MAX_SHARD_BYTES,
  MAX_STATE_BYTES,
  type MemberId,
  parse,
  pathTo,
  refusalIn,
  refusedJob,
  ROUTES,
  type RunEvent,
  type RunView,
  type Sha256,
  type StepRecord,
  type TokenView,
} from '@starling-grid/protocol'
import { type AnswerOf, type ApiRoute, type BodyOf, HTTP_API } from '@starling-grid/protocol/http-api'

/** ms for an answer that needs no import of data */
const ANSWER_MS = 30_000
/** ms for a job's dataset to be imported: a large one takes minutes */
const IMPORT_MS = 60 * 60_000
/** ms for a file to come: as long as a large model takes on a slow line */
const DOWNLOAD_MS = 24 * 60 * 60_000
/** Bytes of a JSON answer: a list of a thousand jobs has a few megabytes. */
const MOST_BYTES = 64 * 1024 * 1024
/** Bytes of a model: as large as any within the limits is. */
const MOST_FILE_BYTES = MAX_STATE_BYTES
/** What this user alone may read of a file. */
const OWN_FILE = 0o600
/** RFC 9110: the same request, at another address */
const SAME_METHOD = 307
/** Coordinators that send a caller on: what they know may be a second old. */
const MOST_HOPS = 3
/** Statuses of a coordinator that is away, or busy, for a while. */
const TRANSIENT: ReadonlySet<number> = new Set([408, 425, 429, 502, 503, 504])

export interface ApiAddress {
  /** http or https origin */
  readonly url: string
  /** of the owner; without one only public jobs are shown */
  readonly token?: string | undefined
}

/** What the coordinator refused. */
export class ApiRefusal extends GridError {
  /** of HTTP */
  readonly status: number
  constructor(status: number, code: GridError['code'], message: string) {
    super(code, message)
    this.status = status
  }
}

/** Whether the same request may succeed a moment later: no answer came, or the coordinator starts, ends or is busy. */
export function isPassing(error: unknown): boolean {
  return error instanceof ApiRefusal
    ? TRANSIENT.has(error.status)
    : isGridError(error) && error.code === 'coordinator-lost'
}

/** What goes to a route of the table. */
interface ApiRequest {
  /** parts of its path */
  readonly parts?: Readonly<Record<string, string | number>>
  readonly query?: Readonly<Record<string, string | number | boolean>>
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** for the whole answer */
  readonly limitMs?: number
  /** in place of the limit */
  readonly signal?: AbortSignal
}

/** All jobs that a caller may read, of all coordinators that share theirs. */
export interface FoundJobs extends Omit<JobList, 'next' | 'others'> {
  /** addresses of coordinators that did not answer; absent where one has all jobs */
  readonly unreached?: readonly string[]
}

export class CoordinatorApi {
  readonly url: string
  readonly #token: string | undefined
  /** the coordinator that is asked first, and others that share its jobs */
  #present: string
  #others: readonly string[] = []

  constructor({ url, token }: ApiAddress) {
    this.url = url
    this.#present = url
    this.#token = token
  }

  /** Those that share their jobs, the one that answers first; they are asked, too, when this one is gone. */
  async coordinators(): Promise<CoordinatorList['coordinators']> {
    const { coordinators } = await this.#ask(HTTP_API.coordinators)
    this.#learn(coordinators.map(({ url }) => url))
    return coordinators
  }

  #learn(urls: readonly string[]): void {
    this.#others = urls.filter((url) => isSameAuthority(this.url, url))
  }

  /** Imports the dataset, and begins the run. */
  async submit(job: JobSpec): Promise<RunView> {
    return (await this.#ask(HTTP_API.submit, { body: job, limitMs: IMPORT_MS })).run as RunView
  }

  /** All that this caller may read, the oldest first. */
  async jobs(): Promise<FoundJobs> {
    const own = await this.#jobsHere()
    if (own.others === undefined) return own
    this.#learn(own.others)
    const found = [own]
    const unreached: string[] = []
    for (const url of own.others) {
      const jobs = await this.#jobsAt(url)
      if (jobs === undefined) unreached.push(url)
      else found.push(jobs)
    }
    const damaged = found.flatMap((one) => one.damaged ?? [])
    const jobs = found.flatMap((one) => one.jobs).sort((one, other) => one.startedAt - other.startedAt)
    return { jobs, unreached, ...(own.damaged === undefined ? {} : { damaged }) }
  }

  async #jobsHere(): Promise<Omit<JobList, 'next'>> {
    const pages = await allPages((query) => this.#ask(HTTP_API.jobs, { query }))
    const { damaged, others } = pages[0] ?? {}
    return {
      jobs: pages.flatMap(({ jobs }) => jobs),
      ...(damaged === undefined ? {} : { damaged }),
      ...(others === undefined ? {} : { others }),
    }
  }

  /** Undefined: it does not answer, or is of another authority, which gets no token. */
  async #jobsAt(url: string): Promise<Omit<JobList, 'next'> | undefined> {
    if (!isSameAuthority(this.url, url)) return undefined
    return new CoordinatorApi({ url, token: this.#token }).#jobsHere().catch((error: unknown) => {
      if (isPassing(error)) return undefined
      throw error
    })
  }

  async run(id: string): Promise<RunView> {
    return this.#ask(HTTP_API.job, { parts: { id } })
  }

  /** What its owner submitted. */
  async spec(id: string): Promise<JobSpec> {
    return this.#ask(HTTP_API.spec, { parts: { id } })
  }

  /** What happened since a moment, in ms since the epoch. */
  async events(id: string, since = 0): Promise<readonly RunEvent[]> {
    const from = Math.floor(since)
    const pages = await allPages((page) =>
      this.#ask(HTTP_API.events, { parts: { id }, query: { since: from, ...page } }),
    )
    return pages.flatMap(({ events }) => events)
  }

  /** The run ends with the epoch that it is in; how many it has then. */
  async stop(id: string): Promise<number> {
    return (await this.#ask(HTTP_API.stop, { parts: { id } })).epochs
  }

  /** The run ends its step, writes a checkpoint and stands still; or goes on. Whether it is paused then. */
  async setPaused(id: string, wanted: boolean): Promise<boolean> {
    return (await this.#ask(wanted ? HTTP_API.pause : HTTP_API.resume, { parts: { id } })).paused
  }

  /** Removes a job with all that it alone has. */
  async delete(id: string): Promise<void> {
    await this.#ask(HTTP_API.deleteJob, { parts: { id } })
  }

  async checkpoints(id: string): Promise<CheckpointList['checkpoints']> {
    return (await this.#ask(HTTP_API.checkpoints, { parts: { id } })).checkpoints
  }

  /** The committed chain. */
  records(id: string): Promise<StepRecord[]> {
    return allRecords(id, async (path) => JSON.parse(await textOf(await this.#send('GET', path), path)))
  }

  /** Steps and events as server-sent events, those behind the id `last` and those to come; 204: none come any more. */
  eventStream(id: string, { last, signal }: { readonly last: string | undefined; readonly signal: AbortSignal }) {
    const resumed = last === undefined ? {} : { 'last-event-id': last }
    const headers = { accept: 'text/event-stream', ...resumed }
    return this.#send('GET', pathTo(ROUTES.events, { id }), { headers, signal })
  }

  /** The model of a kept checkpoint, by default of the newest, as it comes. */
  export(id: string, version?: number): Promise<Response> {
    const query = version === undefined ? '' : `?version=${version}`
    return this.#send('GET', pathTo<string>(ROUTES.export, { id }) + query, { limitMs: DOWNLOAD_MS })
  }

  /** What a hash names of the data and base models of jobs that the token may read. */
  async shard(name: Sha256): Promise<Uint8Array> {
    const path = pathTo<string>(ROUTES.shard, { sha256: name })
    return bytesOf(await this.#send('GET', path, { limitMs: DOWNLOAD_MS }), { most: MAX_SHARD_BYTES, what: path })
  }

  /** A new token; only this answer has it. */
  async createToken(asked: BodyOf<typeof HTTP_API.createToken>): Promise<AnswerOf<typeof HTTP_API.createToken>> {
    return this.#ask(HTTP_API.createToken, { body: asked })
  }

  async tokens(): Promise<readonly TokenView[]> {
    return (await allPages((query) => this.#ask(HTTP_API.tokens, { query }))).flatMap(({ tokens }) => tokens)
  }

  async revokeToken(id: string): Promise<string> {
    return (await this.#ask(HTTP_API.revokeToken, { parts: { id } })).revoked
  }

  /** A new invite; only this answer has its code. */
  async createInvite(asked: {
    readonly uses?: number
    readonly expiresAt?: number
    readonly job?: string
  }): Promise<AnswerOf<typeof HTTP_API.createInvite>> {
    return this.#ask(HTTP_API.createInvite, { body: asked })
  }

  async invites(): Promise<readonly InviteView[]> {
    return (await allPages((query) => this.#ask(HTTP_API.invites, { query }))).flatMap(({ invites }) => invites)
  }

  async revokeInvite(id: string): Promise<string> {
    return (await this.#ask(HTTP_API.revokeInvite, { parts: { id } })).revoked
  }

  /** A group of `size` ranks for a program of several machines; who has the secret brings ranks of it. */
  async openGroup(size: number): Promise<{ readonly id: string; readonly secret: string }> {
    return this.#ask(HTTP_API.openGroup, { body: { size } })
  }

  /** Brings ranks of a group, whose secret is this client's token. The same ranks again change nothing. */
  async bringRanks(group: string, members: readonly MemberId[]): Promise<GroupSeats> {
    return this.#ask(HTTP_API.bringRanks, { parts: { id: group }, body: { members } })
  }

  /** The answer of a route of the table. @throws as #send; GridError 'message-malformed' for another answer */
  async #ask<R extends ApiRoute>(route: R, asked: ApiRequest = {}): Promise<AnswerOf<R>> {
    const path = pathTo<string>(route.path, asked.parts ?? {})
    const query = new URLSearchParams(Object.entries(asked.query ?? {}).map(([name, value]) => [name, String(value)]))
    const address = query.size === 0 ? path : `${path}?${query}`
    const text = await textOf(await this.#send(route.method, address, asked), path)
    return parse(route.answer as Parameters<typeof parse>[0], JSON.parse(text), `the answer of ${path}`) as AnswerOf<R>
  }

  /** @throws ApiRefusal; MistakesError of a job; GridError 'coordinator-lost' when no answer comes */
  async #send(
    method: ApiRoute['method'],
    path: string,
    { body, headers = {}, limitMs = ANSWER_MS, signal }: ApiRequest = {},
  ): Promise<Response> {
    const authorization = this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }
    const json = body === undefined ? {} : { 'content-type': 'application/json' }
    const asked = {
      method,
      headers: { accept: 'application/json', ...authorization, ...json, ...headers },
      ...(body === undefined ? {} : { body: new TextEncoder().encode(JSON.stringify(body)) }),
      signal: signal ?? AbortSignal.timeout(limitMs),
    }
    const response = await this.#follow(this.#present + path, asked).catch((cause: unknown) => {
      if (isGridError(cause)) throw cause
      const error = lost(this.#present, cause)
      this.#turn()
      throw error
    })
    if (response.ok) return response
    throw await refusalOf(response, path)
  }

  /** Where the job is: the token goes to coordinators of the same authority alone. @throws GridError 'usage' */
  async #follow(address: string, asked: Parameters<typeof sendRequest>[1], hops = 0): Promise<Response> {
    const response = await sendRequest(address, asked)
    const to = response.headers.get('location')
    if (response.status !== SAME_METHOD || to === null || hops >= MOST_HOPS) return response
    await response.body?.cancel()
    if (!isSameAuthority(this.url, to))
      throw new GridError(
        'usage',
        `expected a coordinator of the same authority as ${this.url}, got ${to.slice(0, 100)}, which has the job; ` +
          'name that one with --url if you trust it with your token',
      )
    return this.#follow(to, asked, hops + 1)
  }

  /** It is gone, perhaps: the next request goes to another one. */
  #turn(): void {
    const known = [...new Set([this.url, ...this.#others])]
    this.#present = known[(known.indexOf(this.#present) + 1) % known.length] ?? this.url
  }
}

function lost(url: string, cause: unknown): GridError {
  const why = cause instanceof Error && cause.name === 'TimeoutError' ? 'no answer' : describeError(cause)
  return new GridError(
    'coordinator-lost',
    `expected a coordinator at ${url}, got ${why}; check the address (--url or STARLING_URL) and that it runs`,
    { cause },
  )
}

async function refusalOf(response: Response, path: string): Promise<GridError> {
  const fields = fieldsOf(await textOf(response, path).catch(() => ''))
  if (fields['errors'] !== undefined) return refusedJob(fields)
  const refusal = refusalIn(fields)
  if (refusal !== undefined) return new ApiRefusal(response.status, refusal.code, refusal.detail)
  return new ApiRefusal(
    response.status,
    'unsupported',
    `expected a Starling coordinator, got HTTP ${response.status} at ${path}; check the address`,
  )
}

function fieldsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

async function textOf(response: Response, path: string): Promise<string> {
  return Buffer.from(await bytesOf(response, { most: MOST_BYTES, what: path })).toString('utf8')
}

/** @throws GridError 'message-too-large', 'coordinator-lost' when the rest does not come */
export async function bytesOf(
  response: Response,
  { most = MOST_FILE_BYTES, what = 'a model' }: { readonly most?: number; readonly what?: string } = {},
): Promise<Uint8Array> {
  const pieces: Uint8Array[] = []
  let length = 0
  for await (const piece of piecesOf(response)) {
    pieces.push(piece)
    length += piece.byteLength
    if (length > most) throw new GridError('message-too-large', `expected at most ${most} bytes of ${what}, got more`)
  }
  return Buffer.concat(pieces)
}

/** As they come. @throws GridError 'coordinator-lost' */
export async function* piecesOf({ body }: Response): AsyncGenerator<Uint8Array> {
  try {
    for (const reader = body?.getReader(); reader !== undefined;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } catch (cause) {
    throw new GridError('coordinator-lost', `the answer broke off: ${describeError(cause)}; ask again`, { cause })
  }
}

/**
 * Writes the body of an answer into a new file; how many bytes it has.
 * @throws GridError 'folder-unwritable', 'coordinator-lost'
 */
export async function saveBody(response: Response, file: string): Promise<number> {
  const out = await open(file, 'w', OWN_FILE).catch((cause: unknown) => {
    throw new GridError(
      'folder-unwritable',
      `expected a file that can be written, got ${file} (${describeError(cause)}); name another with --out`,
      { cause },
    )
  })
  let length = 0
  try {
    for await (const piece of piecesOf(response)) {
      await out.write(piece)
      length += piece.byteLength
    }
  } finally {
    await out.close()
  }
  return length
}

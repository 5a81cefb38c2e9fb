// The coordinator's HTTP API for owners and readers, typed by the schemas of the protocol: what all commands use.
import { open } from 'node:fs/promises'
import { sendRequest } from '@starling-grid/client-node/http'
import {
  allRecords,
  type CheckpointList,
  CheckpointListSchema,
  describeError,
  EventListSchema,
  GroupOpenedSchema,
  type GroupSeats,
  GroupSeatsSchema,
  GridError,
  isErrorCode,
  isGridError,
  type JobList,
  JobListSchema,
  type JobSpec,
  type MemberId,
  parse,
  pathTo,
  PausedSchema,
  refusedJob,
  ROUTES,
  type RunEvent,
  type RunView,
  RunViewSchema,
  type StepRecord,
  StoppedSchema,
  SubmittedSchema,
} from '@starling-grid/protocol'

/** ms for an answer that needs no import of data */
const ANSWER_MS = 30_000
/** ms for a job's dataset to be imported: a large one takes minutes */
const IMPORT_MS = 60 * 60_000
/** ms for a file to come: as long as a large model takes on a slow line */
const DOWNLOAD_MS = 24 * 60 * 60_000
/** Bytes of a JSON answer: a list of a thousand jobs has a few megabytes. */
const MOST_BYTES = 64 * 1024 * 1024
/** What this user alone may read of a file. */
const OWN_FILE = 0o600
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

interface ApiRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly body?: unknown
  readonly limitMs?: number
}

export class CoordinatorApi {
  readonly url: string
  readonly #token: string | undefined

  constructor({ url, token }: ApiAddress) {
    this.url = url
    this.#token = token
  }

  /** Imports the dataset, and begins the run. */
  async submit(job: JobSpec): Promise<RunView> {
    const answer = await this.#json(ROUTES.jobs, { method: 'POST', body: job, limitMs: IMPORT_MS })
    return parse(SubmittedSchema, answer, 'the submitted job').run
  }

  async jobs(): Promise<JobList> {
    return parse(JobListSchema, await this.#json(ROUTES.jobs), 'the list of jobs')
  }

  async run(id: string): Promise<RunView> {
    return parse(RunViewSchema, await this.#json(pathTo(ROUTES.job, { id })), 'the job')
  }

  /** What happened since a moment, in ms since the epoch. */
  async events(id: string, since = 0): Promise<readonly RunEvent[]> {
    const answer = await this.#json(`${pathTo(ROUTES.events, { id })}?since=${Math.floor(since)}`)
    return parse(EventListSchema, answer, 'the events').events
  }

  /** The run ends with the epoch that it is in; how many it has then. */
  async stop(id: string): Promise<number> {
    const answer = await this.#json(pathTo(ROUTES.stop, { id }), { method: 'POST' })
    return parse(StoppedSchema, answer, 'the answer').epochs
  }

  /** The run ends its step, writes a checkpoint and stands still; or goes on. Whether it is paused then. */
  async setPaused(id: string, wanted: boolean): Promise<boolean> {
    const answer = await this.#json(pathTo(wanted ? ROUTES.pause : ROUTES.resume, { id }), { method: 'POST' })
    return parse(PausedSchema, answer, 'the answer').paused
  }

  async checkpoints(id: string): Promise<CheckpointList['checkpoints']> {
    const answer = await this.#json(pathTo(ROUTES.checkpoints, { id }))
    return parse(CheckpointListSchema, answer, 'the list of checkpoints').checkpoints
  }

  /** The committed chain. */
  records(id: string): Promise<StepRecord[]> {
    return allRecords(id, (path) => this.#json(path))
  }

  /** The model of the newest checkpoint, as it comes. */
  export(id: string): Promise<Response> {
    return this.#send(pathTo(ROUTES.export, { id }), { limitMs: DOWNLOAD_MS })
  }

  /** A group of `size` ranks for a program of several machines; who has the secret brings ranks of it. */
  async openGroup(size: number): Promise<{ readonly id: string; readonly secret: string }> {
    const answer = await this.#json(ROUTES.groups, { method: 'POST', body: { size } })
    return parse(GroupOpenedSchema, answer, 'the group')
  }

  /** Brings ranks of a group, whose secret is this client's token. The same ranks again change nothing. */
  async bringRanks(group: string, members: readonly MemberId[]): Promise<GroupSeats> {
    const answer = await this.#json(pathTo(ROUTES.groupRanks, { id: group }), { method: 'PUT', body: { members } })
    return parse(GroupSeatsSchema, answer, 'the seats')
  }

  async #json(path: string, asked: ApiRequest = {}): Promise<unknown> {
    return JSON.parse(await textOf(await this.#send(path, asked), path))
  }

  /** @throws ApiRefusal; MistakesError of a job; GridError 'coordinator-lost' when no answer comes */
  async #send(path: string, { method = 'GET', body, limitMs = ANSWER_MS }: ApiRequest): Promise<Response> {
    const authorization = this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }
    const json = body === undefined ? {} : { 'content-type': 'application/json' }
    const response = await sendRequest(this.url + path, {
      method,
      headers: { accept: 'application/json', ...authorization, ...json },
      ...(body === undefined ? {} : { body: new TextEncoder().encode(JSON.stringify(body)) }),
      signal: AbortSignal.timeout(limitMs),
    }).catch((cause: unknown) => {
      throw lost(this.url, cause)
    })
    if (response.ok) return response
    throw await refusalOf(response, path)
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
  const { code, message, errors } = fields
  if (errors !== undefined) return refusedJob(fields)
  if (typeof code === 'string' && isErrorCode(code) && typeof message === 'string')
    return new ApiRefusal(response.status, code, message)
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

/** @throws GridError 'message-too-large', 'coordinator-lost' when the rest does not come */
async function textOf(response: Response, path: string): Promise<string> {
  const pieces: Uint8Array[] = []
  let length = 0
  for await (const piece of piecesOf(response)) {
    pieces.push(piece)
    length += piece.byteLength
    if (length > MOST_BYTES)
      throw new GridError('message-too-large', `expected at most ${MOST_BYTES} bytes of ${path}, got more`)
  }
  return Buffer.concat(pieces).toString('utf8')
}

async function* piecesOf({ body }: Response): AsyncGenerator<Uint8Array> {
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

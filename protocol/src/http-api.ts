// The one table of what the coordinator serves over HTTP: each route's method, path, caller, parameters, schemas and
// refusals. The server validates by it, clients are typed by it, and docs/openapi.json and docs/HTTP.md are made of it.
import * as Type from 'typebox'
import type { Static, TObject, TSchema } from 'typebox'
import type { ErrorCode } from './errors.ts'
import { JobSpecSchema } from './job.ts'
import {
  CheckpointListSchema,
  CoordinatorListSchema,
  DeletedSchema,
  EventListSchema,
  GroupOpenedSchema,
  GroupRanksSchema,
  GroupSeatsSchema,
  GroupSizeSchema,
  InviteAskedSchema,
  InviteListSchema,
  InviteMadeSchema,
  InvitePartSchema,
  JobListSchema,
  PausedSchema,
  RevokedSchema,
  StoppedSchema,
  SubmittedSchema,
  TokenAskedSchema,
  TokenListSchema,
  TokenMadeSchema,
  TokenPartSchema,
} from './owner-api.ts'
import { PAGE_QUERY } from './pages.ts'
import { MAX_RECORDS, RecordsPageSchema } from './records.ts'
import { ROUTES } from './routes.ts'
import { RunViewSchema } from './run-view.ts'
import { Count, MemberIdSchema } from './schema.ts'

/** Who may call a route → in words. What belongs to others is answered like what does not exist. */
export const CALLERS = {
  anyone: 'anyone',
  reader: 'reader',
  'jobs:read': 'token `jobs:read`',
  'jobs:write': 'token `jobs:write`',
  admin: 'token `admin`',
  session: 'session',
  group: "the group's secret",
  scraper: 'this machine, token `admin`, or metrics token',
} as const
export type Caller = keyof typeof CALLERS

/** Bytes instead of JSON. */
export const OCTETS = 'application/octet-stream'

export interface ApiRoute {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** of ROUTES */
  readonly path: string
  readonly caller: Caller
  /** what it does, in one line */
  readonly about: string
  /** schemas of the parts of its path that are not those of PARTS */
  readonly parts?: Readonly<Record<string, TSchema>>
  readonly query?: TObject
  readonly body?: TSchema
  /** of its usual success */
  readonly status: number
  readonly answer: TSchema | typeof OCTETS
  /** has an `etag`, and 304 for a caller that names it in `if-none-match` */
  readonly tagged?: true
  /** other answers that are no problem documents, by status */
  readonly also?: Readonly<Record<number, TSchema>>
  /** status → codes of its refusals, beside those that each route has (COMMON_REFUSALS) */
  readonly refusals: Readonly<Record<number, readonly ErrorCode[]>>
}

/** What its usual success says. */
export type AnswerOf<R extends ApiRoute> = R['answer'] extends TSchema ? Static<R['answer']> : Uint8Array

/** What its body says. */
export type BodyOf<R extends ApiRoute> = R['body'] extends TSchema ? Static<R['body']> : undefined

/** What the query of a route says, once it is read. */
export type QueryOf<R extends ApiRoute> = R['query'] extends TObject ? Static<R['query']> : Record<never, never>

/** Refusals of every route: its own bounds and those of the framework. */
export const COMMON_REFUSALS: ApiRoute['refusals'] = {
  400: ['message-malformed'],
  403: ['origin-refused'],
  405: ['message-unexpected'],
  411: ['message-malformed'],
  413: ['message-too-large'],
  415: ['message-malformed'],
  421: ['origin-refused'],
  429: ['rate-exceeded'],
  500: ['unsupported'],
  503: ['coordinator-leaving'],
}

const OWNERS: ApiRoute['refusals'] = { 401: ['token-required'], 403: ['scope-missing'] }
const READERS: ApiRoute['refusals'] = { 401: ['token-required'], 404: ['message-unexpected'] }
const OF_A_JOB: ApiRoute['refusals'] = {
  ...OWNERS,
  404: ['message-unexpected'],
  500: ['journal-damaged', 'unsupported'],
}

/** A moment in ms since the epoch. */
const Moment = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
/** A wish that is said or left out: a misspelt one must not start a run. */
const Wish = Type.Literal(true)

/** Each of the document; the key is its operationId. */
export const HTTP_API = {
  healthz: {
    method: 'GET',
    path: ROUTES.healthz,
    caller: 'anyone',
    about: 'whether the process answers',
    status: 200,
    answer: Type.Object({ ok: Type.Literal(true) }),
    refusals: {},
  },
  readyz: {
    method: 'GET',
    path: ROUTES.readyz,
    caller: 'anyone',
    about:
      'whether it takes work, and where several coordinators share their jobs, which has which; 503 with `reason` ' +
      'while the coordinator stops, or when another one took over',
    status: 200,
    answer: Type.Object({
      ready: Type.Literal(true),
      /** where several coordinators share their jobs: job → address of the one that has it */
      owners: Type.Optional(Type.Record(Type.String(), Type.String())),
    }),
    also: { 503: Type.Object({ ready: Type.Literal(false), reason: Type.String() }) },
    refusals: {},
  },
  openapi: {
    method: 'GET',
    path: ROUTES.openapi,
    caller: 'anyone',
    about: 'this interface as an OpenAPI 3.1 document',
    status: 200,
    tagged: true,
    answer: Type.Object({ openapi: Type.String(), paths: Type.Record(Type.String(), Type.Unknown()) }),
    refusals: {},
  },
  coordinators: {
    method: 'GET',
    path: ROUTES.coordinators,
    caller: 'anyone',
    about:
      'coordinators that share their jobs, this one first, and which has which. A request for a job of another one ' +
      'is answered 307 with its address there',
    status: 200,
    answer: CoordinatorListSchema,
    refusals: {},
  },
  jobs: {
    method: 'GET',
    path: ROUTES.jobs,
    caller: 'anyone',
    about:
      'the jobs that the caller may read, the oldest first, 100 without `limit`. With scope `admin` the first page ' +
      'also has those that cannot be opened, under `damaged`',
    query: Type.Object(PAGE_QUERY),
    status: 200,
    tagged: true,
    answer: JobListSchema,
    refusals: {},
  },
  submit: {
    method: 'POST',
    path: ROUTES.jobs,
    caller: 'jobs:write',
    about:
      'submits a job; `dry`: checks job and model, not the dataset, and answers 200 with what its model needs. ' +
      'A job with mistakes is answered 422 with each of them in `errors`',
    query: Type.Object({ dry: Type.Optional(Wish) }),
    body: JobSpecSchema,
    status: 201,
    answer: SubmittedSchema,
    also: { 200: Type.Object({ model: Type.Object({ parameters: Count, activationBytes: Type.Number() }) }) },
    refusals: {
      ...OWNERS,
      422: ['job-invalid', 'model-invalid', 'dataset-unreadable', 'unsupported'],
      507: ['disk-failed'],
    },
  },
  job: {
    method: 'GET',
    path: ROUTES.job,
    caller: 'reader',
    about: 'the run as the dashboard sees it; it names 256 members at most, memberCount has all',
    status: 200,
    tagged: true,
    answer: RunViewSchema,
    refusals: { ...READERS, 500: ['journal-damaged', 'unsupported'] },
  },
  spec: {
    method: 'GET',
    path: ROUTES.spec,
    caller: 'jobs:read',
    about: 'the job as its file says it, with the version that it began with where that was `latest`',
    status: 200,
    answer: JobSpecSchema,
    refusals: OF_A_JOB,
  },
  deleteJob: {
    method: 'DELETE',
    path: ROUTES.job,
    caller: 'jobs:write',
    about:
      'removes a job that has ended, or that no volunteer works for: its journal, versions, and shards that no other ' +
      'job or dataset has',
    status: 200,
    answer: DeletedSchema,
    refusals: {
      ...OWNERS,
      404: ['message-unexpected'],
      409: ['message-unexpected', 'lease-stale'],
      507: ['disk-failed'],
    },
  },
  stop: {
    method: 'POST',
    path: ROUTES.stop,
    caller: 'jobs:write',
    about: 'the run ends with the epoch that it is in, validated and written as at every end',
    status: 202,
    answer: StoppedSchema,
    refusals: OF_A_JOB,
  },
  pause: {
    method: 'POST',
    path: ROUTES.pause,
    caller: 'jobs:write',
    about:
      'the run ends its step, writes a checkpoint and stands still, also over restarts; its volunteers go to other ' +
      'jobs',
    status: 202,
    answer: PausedSchema,
    refusals: OF_A_JOB,
  },
  resume: {
    method: 'POST',
    path: ROUTES.resume,
    caller: 'jobs:write',
    about: 'a paused run goes on',
    status: 202,
    answer: PausedSchema,
    refusals: OF_A_JOB,
  },
  events: {
    method: 'GET',
    path: ROUTES.events,
    caller: 'reader',
    about:
      'what happened, the oldest first: the last 500 events, or those of them since a moment in ms. With ' +
      '`accept: text/event-stream` as server-sent events, with those to come. Last-Event-ID resumes; 204 says that ' +
      'nothing more comes',
    query: Type.Object({ since: Type.Optional(Moment), ...PAGE_QUERY }),
    status: 200,
    tagged: true,
    answer: EventListSchema,
    refusals: READERS,
  },
  records: {
    method: 'GET',
    path: ROUTES.records,
    caller: 'reader',
    about:
      'at most `limit` records of the committed chain, from the one of version `from` on; `next`: where the next ' +
      'page begins, or null. Pages with different `rewinds` do not belong together: begin anew',
    query: Type.Object({
      from: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_RECORDS })),
    }),
    status: 200,
    tagged: true,
    answer: RecordsPageSchema,
    refusals: READERS,
  },
  export: {
    method: 'GET',
    path: ROUTES.export,
    caller: 'reader',
    about:
      "the model as safetensors, with PyTorch's names; `Range`. `version`: of the checkpoint of that step, " +
      'which must be kept; without it of the newest',
    query: Type.Object({
      version: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    }),
    status: 200,
    tagged: true,
    answer: OCTETS,
    refusals: READERS,
  },
  checkpoints: {
    method: 'GET',
    path: ROUTES.checkpoints,
    caller: 'jobs:read',
    about: 'the checkpoints that are kept, the oldest first',
    status: 200,
    answer: CheckpointListSchema,
    refusals: OF_A_JOB,
  },
  checkpoint: {
    method: 'GET',
    path: ROUTES.checkpoint,
    caller: 'jobs:read',
    about: 'one of them, whole; `Range`',
    status: 200,
    tagged: true,
    answer: OCTETS,
    refusals: OF_A_JOB,
  },
  createToken: {
    method: 'POST',
    path: ROUTES.tokens,
    caller: 'admin',
    about: 'makes a token; only this answer has it',
    body: TokenAskedSchema,
    status: 201,
    answer: TokenMadeSchema,
    refusals: { ...OWNERS, 422: ['usage'], 507: ['disk-failed'] },
  },
  tokens: {
    method: 'GET',
    path: ROUTES.tokens,
    caller: 'admin',
    about: 'the tokens beside the first one, without themselves, the oldest first',
    query: Type.Object(PAGE_QUERY),
    status: 200,
    answer: TokenListSchema,
    refusals: OWNERS,
  },
  revokeToken: {
    method: 'DELETE',
    path: ROUTES.token,
    caller: 'admin',
    about: 'a token is good for nothing from now on; what its holder has open ends; its jobs stay',
    parts: { id: TokenPartSchema },
    status: 200,
    answer: RevokedSchema,
    refusals: { ...OWNERS, 404: ['message-unexpected'], 507: ['disk-failed'] },
  },
  createInvite: {
    method: 'POST',
    path: ROUTES.invites,
    caller: 'jobs:write',
    about:
      'makes an invite of volunteers, with a token that is no admin to one of its own jobs; only this answer has it',
    body: InviteAskedSchema,
    status: 201,
    answer: InviteMadeSchema,
    refusals: { ...OWNERS, 404: ['message-unexpected'], 422: ['usage'], 507: ['disk-failed'] },
  },
  invites: {
    method: 'GET',
    path: ROUTES.invites,
    caller: 'jobs:write',
    about: 'the invites, without their codes, the oldest first; with a token that is no admin those to its own jobs',
    query: Type.Object(PAGE_QUERY),
    status: 200,
    answer: InviteListSchema,
    refusals: OWNERS,
  },
  revokeInvite: {
    method: 'DELETE',
    path: ROUTES.invite,
    caller: 'jobs:write',
    about: 'an invite lets no volunteer in from now on, and those that came by it leave',
    parts: { id: InvitePartSchema },
    status: 200,
    answer: RevokedSchema,
    refusals: { ...OWNERS, 404: ['message-unexpected'], 507: ['disk-failed'] },
  },
  openGroup: {
    method: 'POST',
    path: ROUTES.groups,
    caller: 'jobs:write',
    about: 'opens a group of ranks for `starling launch`: 64 at a time; 10 minutes to fill',
    body: GroupSizeSchema,
    status: 201,
    answer: GroupOpenedSchema,
    refusals: OWNERS,
  },
  bringRanks: {
    method: 'PUT',
    path: ROUTES.groupRanks,
    caller: 'group',
    about: 'brings ranks of a group; with none missing the answer has all of them',
    parts: { id: MemberIdSchema },
    body: GroupRanksSchema,
    status: 200,
    answer: GroupSeatsSchema,
    refusals: { 401: ['session-unknown'], 422: ['usage'] },
  },
  shard: {
    method: 'GET',
    path: ROUTES.shard,
    caller: 'reader',
    about: 'a data shard, named by its content; immutable; `Range`',
    status: 200,
    tagged: true,
    answer: OCTETS,
    refusals: { 401: ['session-unknown'], 404: ['message-unexpected'] },
  },
} as const satisfies Readonly<Record<string, ApiRoute>>

/** A route of volunteers, a WebSocket, or figures in the format of another program: not of the document. */
export interface WireRoute extends Pick<ApiRoute, 'path' | 'caller' | 'about'> {
  readonly method: ApiRoute['method'] | 'WS'
}

export const WIRE_ROUTES: readonly WireRoute[] = [
  {
    method: 'GET',
    path: ROUTES.version,
    caller: 'session',
    about:
      "a version's state, or a `Range` of it, one at a time for each member; or its parameters (`?part=parameters`)",
  },
  {
    method: 'GET',
    path: ROUTES.givenSum,
    caller: 'session',
    about: 'the sum that this member was given to contribute (A1)',
  },
  {
    method: 'POST',
    path: ROUTES.pushes,
    caller: 'session',
    about: 'Σ gradients of a lease (A2)',
  },
  {
    method: 'POST',
    path: ROUTES.rows,
    caller: 'session',
    about: 'parameters with only some rows of named matrices',
  },
  {
    method: 'PUT',
    path: ROUTES.sums,
    caller: 'session',
    about: 'summed gradients of committed steps, which this member was asked for',
  },
  {
    method: 'PUT',
    path: ROUTES.upload,
    caller: 'session',
    about: 'an upload that may become a checkpoint (R15)',
  },
  {
    method: 'POST',
    path: ROUTES.leave,
    caller: 'session',
    about: 'the volunteer leaves; a closing tab sends it, because its Worker may be ended before it does',
  },
  {
    method: 'GET',
    path: ROUTES.variants,
    caller: 'session',
    about: 'which kernel variants volunteers with an adapter of this class found fastest',
  },
  {
    method: 'PUT',
    path: ROUTES.variants,
    caller: 'session',
    about: 'which of them this volunteer found fastest, instead of what it said before',
  },
  {
    method: 'GET',
    path: ROUTES.metrics,
    caller: 'scraper',
    about: "figures of the coordinator and its open jobs, in Prometheus' text format (OPERATIONS.md)",
  },
  { method: 'WS', path: ROUTES.volunteer, caller: 'anyone', about: 'the volunteer protocol (PROTOCOL.md)' },
  {
    method: 'WS',
    path: ROUTES.watch,
    caller: 'anyone',
    about:
      'a snapshot, then updates, of the job that `?job=` names, or of the newest. A caller that may not read the job ' +
      "gets totals only. A page sends one message at most: `{ type: 'owner', token }`",
  },
  {
    method: 'WS',
    path: ROUTES.parameterServer,
    caller: 'admin',
    about: 'a process that holds a key range, `?range=I/N` (`coordinator/src/parameter-server/shard-wire.ts`)',
  },
  {
    method: 'WS',
    path: ROUTES.signalling,
    caller: 'session',
    about: 'the PeerJS protocol, between volunteers of one run',
  },
  {
    method: 'WS',
    path: ROUTES.groupSignalling,
    caller: 'group',
    about: 'the PeerJS protocol, between ranks of one group',
  },
  {
    method: 'WS',
    path: ROUTES.relay,
    caller: 'session',
    about: 'one end of a link that goes through the coordinator',
  },
]

// What the coordinator answers to owners and readers over HTTP: the schemas that its client checks answers by.
import * as Type from 'typebox'
import { IceServersSchema } from './messages.ts'
import { NextSchema } from './pages.ts'
import { RunEventSchema, RunViewSchema } from './run-view.ts'
import { Count, JobIdSchema, MemberIdSchema, type ReadonlyOf, Sha256Schema, strict, VersionIdSchema } from './schema.ts'

/** Of POST of a job. */
export const SubmittedSchema = Type.Object({ id: JobIdSchema, run: RunViewSchema })

/**
 * A page of jobs, the oldest first. `damaged`: for an admin, with the first page, jobs that could not be opened.
 * `others`: with the first page, addresses of other coordinators that share their jobs and list their own.
 */
export const JobListSchema = Type.Object({
  jobs: Type.Array(RunViewSchema),
  next: NextSchema,
  damaged: Type.Optional(Type.Array(Type.Object({ id: JobIdSchema, code: Type.String(), message: Type.String() }))),
  others: Type.Optional(Type.Array(Type.String({ maxLength: 300 }))),
})
export type JobList = ReadonlyOf<typeof JobListSchema>

/** Coordinators that share their jobs, this one first, and which of them has which. */
export const CoordinatorListSchema = Type.Object({
  coordinators: Type.Array(
    Type.Object({
      /** http(s) origin */
      url: Type.String({ maxLength: 300 }),
      /** false: it ends */
      takesJobs: Type.Boolean(),
      volunteers: Count,
      /** ids of jobs; of private ones a name that tells nothing, unless an admin asks */
      jobs: Type.Array(Type.String({ maxLength: 100 })),
    }),
  ),
})
export type CoordinatorList = ReadonlyOf<typeof CoordinatorListSchema>

/** The run ends with this many epochs. */
export const StoppedSchema = Type.Object({ epochs: Count })

/** The job that is gone. */
export const DeletedSchema = Type.Object({ deleted: JobIdSchema })

/** Whether the run stands still until it is resumed. */
export const PausedSchema = Type.Object({ paused: Type.Boolean() })

/** A page of what happened to a run lately, the oldest first. */
export const EventListSchema = Type.Object({ events: Type.Array(RunEventSchema), next: NextSchema })

/** Checkpoints whose bytes are kept, the oldest first. */
export const CheckpointListSchema = Type.Object({
  checkpoints: Type.Array(
    Type.Object({
      v: Count,
      id: VersionIdSchema,
      bytes: Count,
      /** a second member sent the same digest (R15) */
      witnessed: Type.Boolean(),
      sha256: Sha256Schema,
    }),
  ),
})
export type CheckpointList = ReadonlyOf<typeof CheckpointListSchema>

/** Ranks of a group of `starling launch`: each of them computes the moves of all. */
const MAX_GROUP_RANKS = 256

/** Opens a group of this many ranks. */
export const GroupSizeSchema = strict({ size: Type.Integer({ minimum: 1, maximum: MAX_GROUP_RANKS }) })

/** Who has the secret brings ranks of the group. */
export const GroupOpenedSchema = Type.Object({ id: MemberIdSchema, secret: Sha256Schema })

/** Ranks that a launcher brings: ids that it made itself. */
export const GroupRanksSchema = strict({
  members: Type.Array(MemberIdSchema, { minItems: 1, maxItems: MAX_GROUP_RANKS }),
})

/** How many ranks are missing; when none is, all of them by rank, and the ICE servers of each that was brought. */
export const GroupSeatsSchema = Type.Object({
  missing: Count,
  members: Type.Optional(GroupRanksSchema.properties.members),
  iceServers: Type.Optional(Type.Array(IceServersSchema)),
})
export type GroupSeats = ReadonlyOf<typeof GroupSeatsSchema>

/** What a token allows: looking at its own jobs; submitting and controlling them, too; everything. */
export const SCOPES = ['jobs:read', 'jobs:write', 'admin'] as const
export type TokenScope = (typeof SCOPES)[number]
const ScopesSchema = Type.Array(
  Type.Union([Type.Literal('jobs:read'), Type.Literal('jobs:write'), Type.Literal('admin')]),
  { minItems: 1, maxItems: SCOPES.length },
)

/** ms since the epoch */
const Moment = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const MomentOrNever = Type.Union([Moment, Type.Null()])
const TokenIdSchema = Type.String({ pattern: '^t[0-9a-f]{16}$' })
const NoteSchema = Type.String({ maxLength: 80 })

/** Asks for a token; without `expiresAt` it is good until it is revoked. */
export const TokenAskedSchema = strict({
  name: Type.Optional(NoteSchema),
  scopes: ScopesSchema,
  expiresAt: Type.Optional(Moment),
})

const TokenViewSchema = Type.Object({
  id: TokenIdSchema,
  name: NoteSchema,
  scopes: ScopesSchema,
  createdAt: Moment,
  expiresAt: MomentOrNever,
  /** within a minute; null: never */
  lastUsedAt: MomentOrNever,
})
export type TokenView = ReadonlyOf<typeof TokenViewSchema>

/** The one answer that has the token itself. */
export const TokenMadeSchema = Type.Object({ token: Type.String(), view: TokenViewSchema })
export const TokenListSchema = Type.Object({ tokens: Type.Array(TokenViewSchema), next: NextSchema })
export const TokenPartSchema = TokenIdSchema

/** What was revoked, by its id. */
export const RevokedSchema = Type.Object({ revoked: Type.String() })

/** Volunteers of one invite at most: each is an entry of its row. */
const MAX_USES = 10_000
const InviteIdSchema = Type.String({ pattern: '^i[0-9a-f]{16}$' })
export const InvitePartSchema = InviteIdSchema
const UsesSchema = Type.Integer({ minimum: 1, maximum: MAX_USES })

/** `uses`: volunteers that it lets in, absent: any number; `job`: the only one that they are given. */
export const InviteAskedSchema = strict({
  uses: Type.Optional(UsesSchema),
  expiresAt: Type.Optional(Moment),
  job: Type.Optional(JobIdSchema),
})

const InviteViewSchema = Type.Object({
  id: InviteIdSchema,
  createdAt: Moment,
  expiresAt: MomentOrNever,
  uses: Type.Union([UsesSchema, Type.Null()]),
  /** volunteers that came by it, each counted once */
  used: Count,
  job: Type.Union([JobIdSchema, Type.Null()]),
})
export type InviteView = ReadonlyOf<typeof InviteViewSchema>

/** The one answer that has the code, alone and in a link. */
export const InviteMadeSchema = Type.Object({ code: Type.String(), link: Type.String(), view: InviteViewSchema })
export const InviteListSchema = Type.Object({ invites: Type.Array(InviteViewSchema), next: NextSchema })

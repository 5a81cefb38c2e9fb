// What the coordinator answers to owners and readers over HTTP: the schemas that its client checks answers by.
import * as Type from 'typebox'
import { IceServersSchema } from './messages.ts'
import { RunEventSchema, RunViewSchema } from './run-view.ts'
import { Count, JobIdSchema, MemberIdSchema, type ReadonlyOf, Sha256Schema, strict, VersionIdSchema } from './schema.ts'

/** Of POST of a job. */
export const SubmittedSchema = Type.Object({ id: JobIdSchema, run: RunViewSchema })

/** `damaged`: for the owner, jobs that could not be opened. */
export const JobListSchema = Type.Object({
  jobs: Type.Array(RunViewSchema),
  damaged: Type.Optional(Type.Array(Type.Object({ id: JobIdSchema, code: Type.String(), message: Type.String() }))),
})
export type JobList = ReadonlyOf<typeof JobListSchema>

/** The run ends with this many epochs. */
export const StoppedSchema = Type.Object({ epochs: Count })

/** Whether the run stands still until it is resumed. */
export const PausedSchema = Type.Object({ paused: Type.Boolean() })

/** What happened to a run lately, the oldest first. */
export const EventListSchema = Type.Object({ events: Type.Array(RunEventSchema) })

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

/** Opens a group of so many ranks. */
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

// How the durable state of a run is written in a snapshot.
import {
  BlockIdSchema,
  Count,
  FiniteNumber,
  MOST_LAST_CHECKPOINTS,
  type Measurements,
  type MemberId,
  NamedMetricSchema,
  Sha256Schema,
  ShardRefSchema,
  ChainRecordSchema,
  TallySchema,
  strict,
  VersionIdSchema,
  VersionRefSchema,
} from '@starling-grid/protocol'
import * as Type from 'typebox'
import type { Static } from 'typebox'
import type { AppendedShards } from '../appended-shards.ts'
import { MOST_EVALUATIONS } from './ending.ts'
import { MOST_KEPT, MOST_RELEASED, RINGS_KEPT, VALIDATED_KEPT } from './kept.ts'

/** Raised when older programs would misread a snapshot. */
export const SNAPSHOT_FORM = 1

const Text = Type.String({ maxLength: 10_000 })
/** Of members; the simulation and tests name theirs as they like. */
const MemberName = Type.Unsafe<MemberId>(Type.String({ maxLength: 64 }))
const ModeSchema = Type.Union([Type.Literal('ring'), Type.Literal('local'), Type.Literal('async')])

const CheckpointSchema = strict({
  version: VersionRefSchema,
  blob: Type.Optional(Sha256Schema),
  bytes: Count,
  remembered: Type.Optional(Sha256Schema),
  witnessed: Type.Boolean(),
  agreeing: Count,
  members: Count,
  at: FiniteNumber,
})

const ResultSchema = strict({
  samples: Count,
  targets: Count,
  correct: Count,
  lossSum: FiniteNumber,
  tally: Type.Optional(TallySchema),
  confirmed: Type.Boolean(),
})

const NamedMetricsSchema = Type.Unsafe<Measurements['metrics'] & {}>(Type.Array(NamedMetricSchema, { maxItems: 8 }))
const EvaluationSchema = strict({
  version: VersionRefSchema,
  loss: FiniteNumber,
  accuracy: FiniteNumber,
  metrics: Type.Optional(NamedMetricsSchema),
  confirmed: Type.Boolean(),
  count: Count,
})

const AppendedSchema = Type.Unsafe<AppendedShards>(
  strict({ epoch: Count, blocks: Count, before: Count, shards: Type.Array(ShardRefSchema) }),
)

export const WrittenRunSchema = strict({
  form: Type.Literal(SNAPSHOT_FORM),
  fence: Count,
  generation: Count,
  chain: strict({
    base: VersionRefSchema,
    records: Type.Array(ChainRecordSchema),
    head: VersionRefSchema,
    done: Type.Array(strict({ epoch: Count, bits: Type.Optional(Type.String()) })),
  }),
  /** absent: no data was appended */
  appended: Type.Optional(Type.Array(AppendedSchema)),
  checkpoints: Type.Array(CheckpointSchema, { maxItems: 2 * MOST_LAST_CHECKPOINTS + 1 }),
  /** absent: none */
  kept: Type.Optional(Type.Array(CheckpointSchema, { maxItems: MOST_KEPT })),
  released: Type.Optional(Type.Array(CheckpointSchema, { maxItems: MOST_RELEASED })),
  mode: ModeSchema,
  modeEpoch: Count,
  modeReason: Text,
  leasesReserved: Count,
  quarantined: Type.Array(BlockIdSchema),
  restorations: Count,
  validated: Type.Array(
    strict({ id: VersionIdSchema, results: Type.Array(Type.Tuple([BlockIdSchema, ResultSchema])) }),
    { maxItems: VALIDATED_KEPT },
  ),
  /** absent: none yet */
  evaluations: Type.Optional(Type.Array(EvaluationSchema, { maxItems: MOST_EVALUATIONS })),
  /** ms; absent: the job counts no time */
  trainedMs: Type.Optional(FiniteNumber),
  epochs: Count,
  finished: Type.Union([Text, Type.Null()]),
  /** by its owner; absent: not */
  paused: Type.Optional(Type.Literal(true)),
  abandoned: Type.Array(ChainRecordSchema),
  lostGenerations: Type.Union([strict({ from: Count, to: Type.Integer() }), Type.Null()]),
  forgottenGeneration: Count,
  rings: Type.Array(strict({ generation: Count, members: Type.Array(MemberName) }), { maxItems: RINGS_KEPT }),
})

export type WrittenRun = Static<typeof WrittenRunSchema>

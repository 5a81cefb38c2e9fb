// The durable state of a run as one journal row: what applyEntry wrote until then, and nothing else. A restart reads
// the newest snapshot and the rows behind it, and gets the state that all rows would have made.
import {
  BlockIdSchema,
  Count,
  describeError,
  FiniteNumber,
  GridError,
  type MemberId,
  parse,
  Sha256Schema,
  StepRecordSchema,
  strict,
  VersionIdSchema,
  VersionRefSchema,
} from '@starling-grid/protocol'
import * as Type from 'typebox'
import type { Static } from 'typebox'
import type { Checkpoint, RunState } from '../state.ts'
import { KEPT_CHECKPOINTS, RINGS_KEPT, VALIDATED_KEPT } from './kept.ts'

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
  confirmed: Type.Boolean(),
})

export const WrittenRunSchema = strict({
  form: Type.Literal(SNAPSHOT_FORM),
  fence: Count,
  generation: Count,
  chain: strict({
    base: VersionRefSchema,
    records: Type.Array(StepRecordSchema),
    head: VersionRefSchema,
    done: Type.Array(strict({ epoch: Count, bits: Type.Optional(Type.String()) })),
  }),
  checkpoints: Type.Array(CheckpointSchema, { maxItems: 2 * KEPT_CHECKPOINTS + 1 }),
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
  epochs: Count,
  finished: Type.Union([Text, Type.Null()]),
  abandoned: Type.Array(StepRecordSchema),
  lostGenerations: Type.Union([strict({ from: Count, to: Type.Integer() }), Type.Null()]),
  forgottenGeneration: Count,
  rings: Type.Array(strict({ generation: Count, members: Type.Array(MemberName) }), { maxItems: RINGS_KEPT }),
})

export type WrittenRun = Static<typeof WrittenRunSchema>

/** For the next journal row; assignments nothing with the state. */
export function writtenRun(state: RunState): WrittenRun {
  const { fence, generation, mode, modeEpoch, modeReason, leasesReserved, restorations } = state
  const written = {
    form: SNAPSHOT_FORM,
    fence,
    generation,
    chain: state.chain.written(),
    checkpoints: state.checkpoints,
    mode,
    modeEpoch,
    modeReason,
    leasesReserved,
    quarantined: [...state.quarantined],
    restorations,
    validated: [...state.validated].map(([id, results]) => ({ id, results: [...results] })),
    epochs: state.config.epochs,
    finished: state.finished ?? null,
    abandoned: state.abandoned,
    lostGenerations: state.lostGenerations ?? null,
    forgottenGeneration: state.forgottenGeneration,
    rings: [...state.rings].map(([ring, members]) => ({ generation: ring, members })),
  }
  return JSON.parse(JSON.stringify(written)) as WrittenRun
}

/**
 * The state becomes what was written, whatever it was.
 * @throws GridError 'journal-damaged' when that is no snapshot of this form, or contradicts itself
 */
export function readRun(state: RunState, value: unknown): void {
  const written = checked(value)
  try {
    state.chain.read(written.chain)
  } catch (cause) {
    throw new GridError('journal-damaged', `a snapshot: ${describeError(cause)}; restore the journal from a backup`, {
      cause,
    })
  }
  const { fence, generation, mode, modeEpoch, modeReason, leasesReserved, restorations } = written
  const { abandoned, forgottenGeneration, epochs, finished, lostGenerations } = written
  Object.assign(state, {
    forgottenGeneration,
    fence,
    generation,
    mode,
    modeEpoch,
    modeReason,
    leasesReserved,
    restorations,
    abandoned,
  })
  state.config = { ...state.config, epochs }
  state.finished = finished ?? undefined
  state.lostGenerations = lostGenerations ?? undefined
  state.checkpoints.splice(0, state.checkpoints.length, ...written.checkpoints.map(checkpointOf))
  refill(state.quarantined, written.quarantined)
  replaceAll(
    state.validated,
    written.validated.map(({ id, results }) => [id, new Map(results)]),
  )
  replaceAll(
    state.rings,
    written.rings.map((ring) => [ring.generation, ring.members]),
  )
}

function checked(value: unknown): WrittenRun {
  const form = typeof value === 'object' && value !== null && 'form' in value ? value.form : undefined
  if (typeof form === 'number' && form !== SNAPSHOT_FORM)
    throw new GridError(
      'journal-damaged',
      `expected a snapshot of form ${SNAPSHOT_FORM}, got form ${form}; start the version of this program that wrote it`,
    )
  return parse(WrittenRunSchema, value, 'a snapshot in the journal', 'journal-damaged')
}

function checkpointOf({ version, blob, ...rest }: WrittenRun['checkpoints'][number]): Checkpoint {
  return { version, blob, ...rest }
}

function refill<T>(set: Set<T>, values: readonly T[]): void {
  set.clear()
  for (const value of values) set.add(value)
}

function replaceAll<K, V>(map: Map<K, V>, entries: readonly (readonly [K, V])[]): void {
  map.clear()
  for (const [key, value] of entries) map.set(key, value)
}

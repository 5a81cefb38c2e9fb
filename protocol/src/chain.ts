// The chain: what "committed" means. A record names the content of one step; records are chained by hash; a version is
// (v, id). A number alone never names a version (R4).
import { sha256 } from '@noble/hashes/sha2.js'
import * as Type from 'typebox'
import { type BlockId, hex, type JobId, type Sha256, versionId, type VersionId } from './ids.ts'
import { MAX_STEP_BLOCKS, MAX_VERSION_BLOCKS } from './limits.ts'
import { BlockIdsSchema, Count, FiniteNumber, Sha256Schema, strict, VersionIdSchema } from './schema.ts'

/** What weak scaling made of a step: it follows from the generation's members and the step before. */
export interface StepScaling {
  /** blocks of a whole batch: the job's for each member */
  readonly batch: number
  /** of the batch to one member's, as far as the learning rate is warmed up to it */
  readonly scale: number
  /** learning rate of the step, `scale` included */
  readonly lr: number
}

export const StepScalingSchema = Type.Unsafe<StepScaling>(
  strict({
    batch: Type.Integer({ minimum: 1, maximum: MAX_STEP_BLOCKS }),
    scale: Type.Number({ exclusiveMinimum: 0, maximum: MAX_STEP_BLOCKS }),
    lr: Type.Number({ minimum: 0, maximum: MAX_STEP_BLOCKS * 1e6 }),
  }),
)

/** One step of the committed history, equal on all members that hold it. */
export interface StepRecord {
  /** the version that this step makes */
  readonly v: number
  /** generation of the ring (ring) or ballot in force (async) */
  readonly generation: number
  readonly modeEpoch: number
  readonly kind: 'ring' | 'round' | 'async'
  readonly blocks: readonly BlockId[]
  /** samples in the step: n */
  readonly samples: number
  /** targets that lossSum sums over */
  readonly targets: number
  readonly lossSum: number
  readonly correct: number
  /** SHA-256 of the reduced gradient's bytes: transport faults show at once */
  readonly gradDigest: Sha256
  /** of a job with weak scaling */
  readonly scaling?: StepScaling
}

const recordOf = (mostBlocks: number) =>
  Type.Unsafe<StepRecord>(
    strict({
      v: Count,
      generation: Count,
      modeEpoch: Count,
      kind: Type.Union([Type.Literal('ring'), Type.Literal('round'), Type.Literal('async')]),
      blocks: BlockIdsSchema({ maxItems: mostBlocks }),
      samples: Count,
      targets: Count,
      lossSum: FiniteNumber,
      correct: Count,
      gradDigest: Sha256Schema,
      scaling: Type.Optional(StepScalingSchema),
    }),
  )
/** In messages: of a ring. */
export const StepRecordSchema = recordOf(MAX_STEP_BLOCKS)
/** On the chain: also of the parameter server, whose versions take in what many groups contribute. */
export const ChainRecordSchema = recordOf(MAX_VERSION_BLOCKS)

export const VersionRefSchema = Type.Unsafe<VersionRef>(strict({ v: Count, id: VersionIdSchema }))
export interface VersionRef {
  readonly v: number
  readonly id: VersionId
}

const encoder = new TextEncoder()

/** Version 0 of a job: no step made. Its parameters are those of the digest `initial`, or the seed's without one. */
export function genesis(job: JobId, modelHash: string, seed: number, initial?: Sha256): VersionRef {
  const given = initial === undefined ? '' : `\n${initial}`
  return { v: 0, id: hashText(`starling version 0\n${job}\n${modelHash}\n${seed}${given}`) }
}

/** id(v) = SHA-256(id(v−1) ‖ r(v)), the record in a fixed field order. */
export function recordId(parent: VersionId, record: StepRecord): VersionId {
  const { v, generation, modeEpoch, kind, blocks, samples, targets, lossSum, correct, gradDigest, scaling } = record
  const fields = [parent, v, generation, modeEpoch, kind, blocks, samples, targets, lossSum, correct, gradDigest]
  return hashText(
    JSON.stringify(scaling === undefined ? fields : [...fields, scaling.batch, scaling.scale, scaling.lr]),
  )
}

export function extend(parent: VersionRef, record: StepRecord): VersionRef {
  if (record.v !== parent.v + 1) throw new Error(`internal: record ${record.v} cannot follow version ${parent.v}`)
  return { v: record.v, id: recordId(parent.id, record) }
}

/** The version after all records, or undefined when their numbers do not follow `base`. */
export function fold(base: VersionRef, records: readonly StepRecord[]): VersionRef | undefined {
  let version = base
  for (const record of records) {
    if (record.v !== version.v + 1) return undefined
    version = extend(version, record)
  }
  return version
}

export function sameVersion(a: VersionRef, b: VersionRef): boolean {
  return a.v === b.v && a.id === b.id
}

/** Hex SHA-256 of bytes, synchronous (about 130 MB/s); big blobs go through `sha256Of`. */
export function digest(bytes: Uint8Array): Sha256 {
  return hex(sha256(bytes)) as Sha256
}

/** Hex SHA-256 by the platform's own implementation. */
export async function sha256Of(bytes: Uint8Array): Promise<Sha256> {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as BufferSource))) as Sha256
}

function hashText(text: string): VersionId {
  return versionId(hex(sha256(encoder.encode(text))))
}

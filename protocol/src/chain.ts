// The chain: what "committed" means. A record says what one step holds; records are chained by hash; a version is (v, id).
// A number alone never names a version (COMMIT.md §1).
import { sha256 } from '@noble/hashes/sha2.js'
import Type, { type Static } from 'typebox'
import { type BlockId, hex, type JobId, type Sha256, versionId, type VersionId } from './ids.ts'
import { MAX_BLOCKS } from './limits.ts'
import { BlockIdSchema, Count, FiniteNumber, Sha256Schema, VersionIdSchema } from './schema.ts'

/** One step of the committed history, equal on all members that hold it. */
export const StepRecordSchema = Type.Object(
  {
    /** the version that this step makes */
    v: Count,
    /** generation of the ring (ring) or ballot in force (async) */
    gen: Count,
    modeEpoch: Count,
    kind: Type.Union([Type.Literal('ring'), Type.Literal('round'), Type.Literal('async')]),
    blocks: Type.Array(BlockIdSchema, { maxItems: MAX_BLOCKS }),
    /** samples in the step: n */
    samples: Count,
    /** targets that lossSum sums over */
    targets: Count,
    lossSum: FiniteNumber,
    correct: Count,
    /** SHA-256 of the reduced gradient's bytes: transport faults show at once */
    gradDigest: Sha256Schema,
  },
  { additionalProperties: false },
)
type RecordShape = Static<typeof StepRecordSchema>
export interface StepRecord extends Omit<RecordShape, 'blocks' | 'gradDigest'> {
  readonly blocks: readonly BlockId[]
  readonly gradDigest: Sha256
}

export const VersionRefSchema = Type.Object({ v: Count, id: VersionIdSchema }, { additionalProperties: false })
export interface VersionRef {
  readonly v: number
  readonly id: VersionId
}

const encoder = new TextEncoder()

/** Version 0 of a job: nothing trained, parameters from the seed. */
export function genesis(job: JobId, modelHash: string, seed: number): VersionRef {
  return { v: 0, id: hashText(`starling version 0\n${job}\n${modelHash}\n${seed}`) }
}

/** id(v) = SHA-256(id(v−1) ‖ r(v)), the record in a fixed field order. */
export function recordId(parent: VersionId, record: StepRecord): VersionId {
  const { v, gen, modeEpoch, kind, blocks, samples, targets, lossSum, correct, gradDigest } = record
  return hashText(JSON.stringify([parent, v, gen, modeEpoch, kind, blocks, samples, targets, lossSum, correct, gradDigest]))
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

/** Hex SHA-256 of bytes, synchronous (about 130 MB/s); big blobs go through `crypto.subtle`. */
export function digest(bytes: Uint8Array): Sha256 {
  return hex(sha256(bytes)) as Sha256
}

function hashText(text: string): VersionId {
  return versionId(hex(sha256(encoder.encode(text))))
}

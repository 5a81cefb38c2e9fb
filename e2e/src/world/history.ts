// Parameters of the simulation: one float per training block of the run, counting how often the block is in them. What
// a version id must hold is kept beside it, so that every claim can be compared with the truth (I1, I6).
import {
  type BlockId,
  blockIndex,
  epochOf,
  sameVersion,
  type StepRecord,
  type VersionRef,
} from '@starling-grid/protocol'
import type { Violations } from './violations.ts'

export interface Replica {
  readonly version: VersionRef
  readonly counts: Float32Array
}

interface Truth {
  readonly parent: VersionRef | undefined
  /** of the record that made it */
  readonly generation: number
  readonly counts: Float32Array
}

/** What each version id holds, by construction from its records. */
export class History {
  readonly #blocksPerEpoch: number
  readonly #length: number
  readonly #truths = new Map<string, Truth>()
  readonly #violations: Violations

  constructor(
    genesis: VersionRef,
    shape: { readonly blocks: number; readonly epochs: number },
    violations: Violations,
  ) {
    this.#blocksPerEpoch = shape.blocks
    this.#length = shape.blocks * shape.epochs
    this.#violations = violations
    this.#truths.set(genesis.id, { parent: undefined, generation: 0, counts: new Float32Array(this.#length) })
  }

  /** Floats of a replica. */
  get length(): number {
    return this.#length
  }

  /** Where a block is counted. */
  seat(block: BlockId): number {
    return epochOf(block) * this.#blocksPerEpoch + blockIndex(block)
  }

  /** One-hot sum of the blocks: the "gradient" of an assignment. */
  gradient(blocks: readonly BlockId[]): Float32Array {
    const vector = new Float32Array(this.#length)
    for (const block of blocks) vector[this.seat(block)] = (vector[this.seat(block)] ?? 0) + 1
    return vector
  }

  /** Registers what `version`, made by `record` from `parent`, must hold. */
  record(parent: VersionRef, record: StepRecord, version: VersionRef): void {
    const before = this.#truths.get(parent.id)
    if (this.#truths.has(version.id) || before === undefined) return
    const counts = plus(before.counts, this.gradient(record.blocks))
    this.#truths.set(version.id, { parent, generation: record.generation, counts })
    if (counts.some((count) => count > 1)) this.#violations.report('I1', `version ${version.v} holds a block twice`)
  }

  /** I1 and I6: no block twice, and what is claimed is what is held. */
  check(who: string, replica: Replica): void {
    if (replica.counts.some((count) => count > 1))
      return this.#violations.report('I1', `${who} holds a block twice at version ${replica.version.v}`)
    const truth = this.counts(replica.version)
    if (truth === undefined)
      return this.#violations.report('I6', `${who} claims an unknown version ${replica.version.v}`)
    if (truth.some((count, i) => count !== replica.counts[i]))
      this.#violations.report('I6', `${who} claims version ${replica.version.v} and holds something else`)
  }

  counts(version: VersionRef): Float32Array | undefined {
    return this.#truths.get(version.id)?.counts
  }

  /** The oldest generation of the steps that lead from `ancestor` to `version`. */
  oldestGeneration(version: VersionRef, ancestor: VersionRef): number {
    let oldest = Number.POSITIVE_INFINITY
    for (let at: VersionRef | undefined = version; at !== undefined && at.v > ancestor.v;) {
      const truth: Truth | undefined = this.#truths.get(at.id)
      oldest = Math.min(oldest, truth?.generation ?? oldest)
      at = truth?.parent
    }
    return oldest
  }

  /** `version` is `ancestor` or was made from it. */
  descends(version: VersionRef, ancestor: VersionRef): boolean {
    let at: VersionRef | undefined = version
    while (at !== undefined && at.v > ancestor.v) at = this.#truths.get(at.id)?.parent
    return at !== undefined && sameVersion(at, ancestor)
  }
}

export function plus(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((value, i) => value + (b[i] ?? 0))
}
